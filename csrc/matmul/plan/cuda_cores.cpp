// The candidates of CUDA cores. Costs are microseconds, as in candidates.cpp.
#include <algorithm>

#include "matmul/plan/plan.h"

namespace xgemm::matmul {
namespace {

constexpr double kSimtLaunch = 3.42, kSimtElements = 2;  // a launch; the time of loads by element relative to vectors
// gemv: a launch; a CTA's start and end; of a warp 128 bytes of k; more of it (times that) for x by element.
constexpr double kGemvLaunch = 4.3, kGemvStart = 4.5, kGemvStage = 0.362, kGemvOfX = 0.5;
constexpr double kDotWarpBytes = 3.3e9;              // per second: a warp of dot has some loads in flight
constexpr double kDotStaged = 1.5, kDotCopy = 3;     // dot whose small operand is copied to shared memory: time; microseconds
constexpr double kDotLine = 0.06, kDotRow = 0.0248;  // of an SM: a warp's start; its lanes' sum of each row
// sweep: a launch; of an SM a tile's row if each product's rounding is kept; fewer CTAs do not reach the memory's rate.
constexpr double kSweepLaunch = 2.45, kSweepExactRow = 0.416, kSweepBlocksForMemory = 25.4;
// outputs, fitted to 446 products of heads (docs/log/matmul.md): everything but CTAs; a CTA of an SM; its threads' turn along k,
// more of it for each cache line of its warps; a cluster's meeting.
constexpr double kOutputsLaunch = 1.47, kOutputsCta = 0.255, kOutputsTurn = 0.0706, kOutputsLine = 7.94e-4,
                 kOutputsMeeting = 0.596;

void consider_gemv(const Question& q, Least<GemvPlan>& least) {
  const Problem& p = q.p;
  constexpr std::int64_t kWarps = 4, kStageBytes = 128;  // as in gemv.cuh
  constexpr int kPerSm = 2;
  const std::int64_t tiles = ceil_div(std::max(p.m, p.n), 32) * p.batches, chunk = chunk_length(p.n, p.k),
                     chunks = chunk_count(p.n, p.k), bytes = accumulator_bytes(p.dtype),
                     sums = (gemv_is_exact(p) ? 2 : 1) * p.batches * p.m * p.n * chunks * bytes,
                     stages = ceil_div(std::min(p.k, chunk) * bytes, kStageBytes);  // of a chunk
  const bool of_b = p.m <= kGemvLines, one = std::min(p.m, p.n) == 1;
  const bool quads_of_x = of_b ? q.quads_a && a_along_k(p) : q.quads_b && b_along_k(p);
  const double stage = kGemvStage * (1 + ((of_b ? q.quads_b : q.quads_a) ? 0 : 16 / q.size) + (one || quads_of_x ? 0 : kGemvOfX));
  GemvPlan plan{};
  plan.kernel = GemvKernel::gemv, plan.chunk = chunk, plan.chunks = chunks;
  each_split(q, chunks, tiles, kPerSm, [&](std::int64_t splits, std::int64_t each) {
    plan.splits = splits, plan.workspace_bytes = splits > 1 ? sums : 0;
    const double waves = std::max(1.0, static_cast<double>(tiles * splits) / (kPerSm * q.gpu.sm_count)),
                 cta = kGemvStart + stage * static_cast<double>(ceil_div(each, kWarps) * stages);
    least.consider(plan,
                   kGemvLaunch + (splits > 1 ? kNextLaunch : 0) + std::max(q.move(of_b ? q.bytes_b : q.bytes_a), waves * cta));
  });
}

void consider_dot(const Question& q, Least<GemvPlan>& least) {
  const Problem& p = q.p;
  const bool of_b = dot_streams_b(p), strided = !(a_along_k(p) && b_along_k(p)), stages = strided && dot_stages(p.k);
  const std::int64_t lines = of_b ? p.n : p.m, matrices = is_shared(p, of_b ? p.b : p.a) ? 1 : p.batches;
  const double warps = static_cast<double>(lines * matrices) * (p.k <= kDotShort ? dot_lanes(p.k) / 32.0 : dot_warps(lines, p.k)),
               bytes = of_b ? q.bytes_b : q.bytes_a, row = kDotRow * static_cast<double>(of_b ? p.m : p.n);
  const double slower = stages ? kDotStaged : strided ? 4 * kDotStaged : 1;
  const double us =
      std::max({slower * q.move(bytes), 1e6 * bytes / (warps * kDotWarpBytes), warps / q.gpu.sm_count * (kDotLine + row)});
  GemvPlan plan{};
  plan.kernel = GemvKernel::dot;
  least.consider(plan, kLaunch + (stages ? kDotCopy : 0) + us);
}

void consider_sweep(const Question& q, Least<GemvPlan>& least) {
  const Problem& p = q.p;
  const bool of_b = sweep_streams_b(p);
  const std::int64_t lines = of_b ? p.n : p.m, tiles = ceil_div(lines, std::int64_t{kSweepColumns}) * p.batches;
  GemvPlan plan{};
  plan.kernel = GemvKernel::sweep, plan.splits = sweep_splits(lines, p.k), plan.tiles = tiles;
  plan.many = tiles * plan.splits > (plan.splits == 1 ? 1 : 2) * q.gpu.sm_count;
  const double busy = std::min(1.0, static_cast<double>(tiles * plan.splits) / kSweepBlocksForMemory);
  const double exact =
      p.k <= kSweepExact ? static_cast<double>(ceil_div(tiles, q.gpu.sm_count) * std::min(p.m, p.n)) * kSweepExactRow : 0;
  least.consider(plan, kSweepLaunch + exact + q.move(of_b ? q.bytes_b : q.bytes_a) / busy);
}

/// Other names, and a tile that cannot do the problem, leave simt_64x64, which does every problem of fp32 and fp64.
SimtPlan offer_simt(const Question& q) {
  const Problem& p = q.p;
  const bool vector = q.quads_a && q.quads_b;
  const std::int64_t chunk = chunk_length(p.n, p.k), chunks = chunk_count(p.n, p.k);
  Least<SimtPlan> least;
  each_tile<SimtTile>(kSimtTiles, q.forced, [&](SimtTile tile, TileInfo t) {
    const auto bytes = static_cast<std::size_t>(shape(tile).shared_bytes(accumulator_bytes(p.dtype)));
    if (!has_instance(tile, p.dtype) || bytes > q.gpu.smem_per_block || !q.legal.simt) return;
    t.slow_down(p.dtype == DType::f64 ? 2 * q.machine.slower(&ArchitectureRates::fma_f64)
                                      : q.machine.slower(&ArchitectureRates::fma));
    const std::int64_t tiles = q.tiles(t), sums = p.batches * p.m * p.n * chunks * accumulator_bytes(p.dtype);
    each_split(q, chunks, tiles, kMostWaves, [&](std::int64_t splits, std::int64_t each) {
      least.consider({tile, chunk, chunks, splits, splits > 1 ? sums : 0, vector, 0},
                     (vector || tile == SimtTile::t16x128 ? 1 : kSimtElements) *
                         (kSimtLaunch + q.product(t, tiles, splits, std::min(p.k, each * chunk)) +
                          (splits > 1 ? q.add_by_launch(chunks, sums / chunks) : 0)));
    });
  });
  return least.best.value_or(SimtPlan{SimtTile::t64x64, chunk, chunks, 1, 0, vector, 1e30});
}

}  // namespace

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
    if (plan.splits > 1 && (!q.hopper || outputs * plan.splits > q.gpu.sm_count)) break;
    const double ctas = static_cast<double>(outputs * plan.splits) / q.gpu.sm_count,
                 turns = static_cast<double>(ceil_div(p.k, kOutputsThreads * plan.splits));
    const double meeting = plan.splits > 1 ? kOutputsMeeting : 0, k_turns = turns * std::max(1.0, ctas) * turn;
    least.consider(plan, kOutputsLaunch + ctas * kOutputsCta + meeting + std::max(k_turns, q.memory()));
  }
  return least.best;
}

SimtPlan simt_fallback(Problem p, const DeviceProperties& gpu) {
  p.precision = Precision::ieee;
  SimtPlan simt = offer_simt({p, gpu});  // for few rows gemv would be faster, but it computes whole products only
  simt.splits = 1, simt.workspace_bytes = 0;
  return simt;
}

// A gemv reads the large operand at the memory's rate; no tile beats that.
std::optional<Candidate> offer_cuda_cores(const Question& q) {
  Least<GemvPlan> least;
  if (q.legal.gemv) consider_gemv(q, least);
  if (q.legal.dot) consider_dot(q, least);
  if (q.legal.sweep) consider_sweep(q, least);
  if (least.best) return *least.best;
  return is_half(q.p.dtype) ? std::nullopt : std::optional<Candidate>(offer_simt(q));
}

}  // namespace xgemm::matmul
