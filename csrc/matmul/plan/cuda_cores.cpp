// The candidates of CUDA cores. Costs are microseconds of an H200 under load, fitted to
// benchmarks/results/nvidia_h200/matmul_plans.json (tools/plan_costs) unless a comment says otherwise.
#include <algorithm>

#include "matmul/plan/offers.h"
#include "matmul/plan/plan.h"

namespace xgemm::matmul {
namespace {

// A launch; the time of loads by element relative to vectors.
constexpr double kSimtLaunch = 3.42, kSimtElements = 2;
constexpr double kGemvLaunch = 4.3, kDotLaunch = 1.2, kSweepLaunch = 2.45;
// gemv: a CTA's start and end; of a warp 128 bytes of k, whose products a lane adds one after another, and more (times that) by
// element, or for x by element.
constexpr double kGemvStart = 4.5, kGemvStage = 0.362, kGemvOfX = 0.5;
constexpr double kDotWarpBytes = 3.3e9;              // per second: a warp of dot has some loads in flight
constexpr double kDotStaged = 1.5, kDotCopy = 3.0;   // dot whose small operand is copied to shared memory: time; microseconds
constexpr double kDotLine = 0.06, kDotRow = 0.0248;  // of an SM: a warp's start; its lanes' sum of each row
constexpr double kSweepExactRow = 0.416;             // of an SM: a tile's row if each product's rounding is kept
constexpr double kSweepBlocksForMemory = 25.4;       // fewer do not reach the memory's rate
// outputs: everything but CTAs; a CTA of an SM; its threads' turn along k, more of it for each cache line of its warps; a
// cluster's meeting.
constexpr double kOutputsLaunch = 1.47, kOutputsCta = 0.255, kOutputsTurn = 0.0706, kOutputsLine = 7.94e-4,
                 kOutputsMeeting = 0.596;

GemvPlan offer_gemv(const Question& q) {
  const Problem& p = q.p;
  constexpr std::int64_t kWarps = 4, kStageBytes = 128, kBlocksPerSm = 2;  // as in gemv.cuh
  const auto size = static_cast<std::int64_t>(size_of(p.dtype));
  const bool of_b = p.m <= kGemvLines, one = std::min(p.m, p.n) == 1;
  const OperandLines small = of_b ? lines_of_a(p) : lines_of_b(p);
  const double stage = kGemvStage * (1 + ((of_b ? q.quads_b : q.quads_a) ? 0 : 16 / q.size) +
                                     (one || (small.k_stride == 1 && (of_b ? q.quads_a : q.quads_b)) ? 0 : kGemvOfX));
  const std::int64_t tiles = ceil_div(std::max(p.m, p.n), 32) * p.batches, planes = gemv_is_exact(p) ? 2 : 1;
  GemvPlan plan{};
  plan.chunk = q.chunk, plan.chunks = q.chunks;
  Least<GemvPlan> least;
  each_halving(plan.chunks, [&](std::int64_t splits, std::int64_t each) {
    const double waves = std::max(1.0, static_cast<double>(tiles * splits) / static_cast<double>(kBlocksPerSm * q.gpu.sm_count));
    const auto stages = static_cast<double>(ceil_div(each, kWarps) * ceil_div(std::min(p.k, plan.chunk) * size, kStageBytes));
    plan.splits = splits;
    plan.workspace_bytes = splits > 1 ? planes * p.batches * p.m * p.n * plan.chunks * accumulator_bytes(p.dtype) : 0;
    least.consider(plan, kGemvLaunch + (splits > 1 ? kNextLaunch : 0) +
                             std::max(q.move(of_b ? q.bytes_b : q.bytes_a), waves * (kGemvStart + stages * stage)));
  });
  return *least.best;
}

GemvPlan offer_dot(const Question& q) {
  const Problem& p = q.p;
  const bool of_b = dot_streams_b(p), strided = !(a_along_k(p) && b_along_k(p)), stages = strided && dot_stages(p.k);
  const std::int64_t lines = of_b ? p.n : p.m, rows = of_b ? p.m : p.n;
  const double all = static_cast<double>(lines * (is_shared(p, of_b ? p.b : p.a) ? 1 : p.batches));
  const double warps = all * (p.k <= kDotShort ? dot_lanes(p.k) / 32.0 : dot_warps(lines, p.k));
  const double slower = stages ? kDotStaged : strided ? 4 * kDotStaged : 1;
  const double rate = std::min(q.machine.read_bytes / slower, warps * kDotWarpBytes);
  GemvPlan plan{};
  plan.kernel = GemvKernel::dot, plan.chunk = q.chunk, plan.chunks = q.chunks, plan.splits = 1;
  plan.seconds = 1e-6 * (kDotLaunch + (stages ? kDotCopy : 0) +
                         std::max(1e6 * 4 * all * static_cast<double>(p.k) / rate,
                                  warps / q.gpu.sm_count * (kDotLine + static_cast<double>(rows) * kDotRow)));
  return plan;
}

GemvPlan offer_sweep(const Question& q) {
  const Problem& p = q.p;
  const bool of_b = sweep_streams_b(p);
  const std::int64_t lines = of_b ? p.n : p.m;
  GemvPlan plan{};
  plan.kernel = GemvKernel::sweep, plan.splits = sweep_splits(lines, p.k);
  plan.tiles = ceil_div(lines, std::int64_t{kSweepColumns}) * p.batches;
  plan.many = plan.tiles * plan.splits > (plan.splits == 1 ? 1 : 2) * q.gpu.sm_count;
  const double busy = std::min(1.0, static_cast<double>(plan.tiles * plan.splits) / kSweepBlocksForMemory);
  const double exact =
      p.k <= kSweepExact ? static_cast<double>(ceil_div(plan.tiles, q.gpu.sm_count) * std::min(p.m, p.n)) * kSweepExactRow : 0;
  plan.seconds = 1e-6 * (kSweepLaunch + exact + q.move(of_b ? q.bytes_b : q.bytes_a) / busy);
  return plan;
}

}  // namespace

SimtPlan offer_simt(const Question& q) {
  const Problem& p = q.p;
  const bool vector = q.quads_a && q.quads_b;
  Least<SimtPlan> least;
  const SimtPlan none{SimtTile::t64x64, q.chunk, q.chunks, 1, 0, vector, 1e30};
  SimtPlan plan = none;
  each_tile<SimtTile>(kSimtTiles, q.forced, [&](SimtTile tile, TileInfo t) {
    const auto bytes = static_cast<std::size_t>(shape(tile).shared_bytes(accumulator_bytes(p.dtype)));
    if (!has_instance(tile, p.dtype) || bytes > q.gpu.smem_per_block || !q.legal.simt) return;
    const double slower = p.dtype == DType::f64 ? 2 * q.machine.cuda_f64_slower : q.machine.cuda_slower;
    t.block *= slower, t.more *= slower;
    plan.tile = tile;
    each_halving(plan.chunks, [&](std::int64_t splits, std::int64_t each) {
      const std::int64_t tiles = ceil_div(p.m, t.m) * ceil_div(p.n, t.n) * p.batches, sums = p.batches * p.m * p.n * plan.chunks;
      plan.splits = splits, plan.workspace_bytes = splits > 1 ? sums * accumulator_bytes(p.dtype) : 0;
      least.consider(plan, (vector || tile == SimtTile::t16x128 ? 1 : kSimtElements) *
                               (kSimtLaunch + q.product(t, tiles, splits, std::min(p.k, each * plan.chunk)) +
                                (splits > 1 ? kNextLaunch + q.move(8 * static_cast<double>(sums)) : 0)));
    });
  });
  return least.best.value_or(none);
}

std::optional<GemvPlan> offer_outputs(const Question& q) {
  const Problem& p = q.p;
  constexpr std::int64_t kMostOfSm = 4;  // outputs; of more, tiles are always faster
  const std::int64_t outputs = p.m * p.n * p.batches;
  if (!q.legal.outputs || (q.forced.empty() && outputs > kMostOfSm * q.gpu.sm_count)) return {};
  const auto lines = [&](const OperandLines& x) {  // cache lines that a warp's load touches
    const std::int64_t bytes = 32 * x.k_stride * static_cast<std::int64_t>(q.size);
    return static_cast<double>(std::clamp<std::int64_t>(ceil_div(bytes, std::int64_t{128}), 1, 32));
  };
  const double turn = kOutputsTurn + kOutputsThreads / 32 * kOutputsLine * (lines(lines_of_a(p)) + lines(lines_of_b(p)));
  GemvPlan plan{};
  plan.kernel = GemvKernel::outputs;
  Least<GemvPlan> least;
  for (plan.splits = 1; plan.splits <= kMaxCluster; plan.splits *= 2) {
    if (plan.splits > 1 && (q.gpu.major != 9 || outputs * plan.splits > q.gpu.sm_count)) break;
    const double ctas = static_cast<double>(outputs * plan.splits) / q.gpu.sm_count,
                 turns = static_cast<double>(ceil_div(p.k, kOutputsThreads * plan.splits));
    least.consider(
        plan, kOutputsLaunch + ctas * kOutputsCta + (plan.splits > 1 ? kOutputsMeeting : 0) + turns * std::max(1.0, ctas) * turn);
  }
  return least.best;
}

// A gemv reads the large operand at the memory's rate; no tile beats that.
std::optional<Candidate> offer_cuda_cores(const Question& q) {
  Least<GemvPlan> least;
  if (q.legal.gemv && !q.legal.sweep) least.offer(offer_gemv(q));  // sweep reads the same in one launch: always faster
  if (q.legal.dot) least.offer(offer_dot(q));
  if (q.legal.sweep) least.offer(offer_sweep(q));
  if (least.best) return *least.best;
  return is_half(q.p.dtype) ? std::nullopt : std::optional<Candidate>(offer_simt(q));
}

}  // namespace xgemm::matmul
