#include "matmul/gemv/plan.h"

#include <algorithm>

#include "device/integer.h"
#include "matmul/plan/legality.h"
#include "matmul/plan/roofline.h"

namespace xgemm::matmul {
namespace {

// Microseconds (docs/log/matmul.md, "Few rows, fp32, weight K-major", "At most 4 rows or columns, fp32").
constexpr double kGemvLaunch = 4.3, kDotLaunch = 1.2, kSweepLaunch = 2.45;
// Of a warp of gemv: 128 bytes of k, whose products a lane adds one after another; four times as long by element.
constexpr double kGemvStage = 0.362;
constexpr double kDotWarpBytes = 3.3e9;              // per second: a warp of dot has some loads in flight
constexpr double kDotStaged = 1.5, kDotCopy = 3.0;   // dot whose small operand is copied to shared memory: time; microseconds
constexpr double kDotLine = 0.06, kDotRow = 0.0248;  // of an SM: a warp's start; its lanes' sum of each row
constexpr double kSweepExactRow = 0.416;             // of an SM: a tile's row if each product's rounding is kept
constexpr double kSweepBlocksForMemory = 25.4;       // fewer do not reach the memory's rate

/// gemv reads its large operand at the memory's rate if no warp has too many stages; a second launch has to pay for itself.
struct Estimate {
  double us;
  std::int64_t splits;
};
Estimate gemv_estimate(const Problem& p, std::int64_t chunks, const Machine& machine) {
  constexpr std::int64_t kWarps = 4, kStageBytes = 128, kBlocksPerSm = 2;  // as in gemv.cuh
  const auto size = static_cast<std::int64_t>(size_of(p.dtype));
  const bool of_b = p.m <= kGemvLines;
  const OperandLines large = of_b ? lines_of_b(p) : lines_of_a(p);
  const double stage = kGemvStage * (has_vectors(p, large, 4) ? 1 : 1 + 16.0 / static_cast<double>(size));
  const std::int64_t tiles = ceil_div(std::max(p.m, p.n), 32) * p.batches;
  Estimate best{1e30, 1};
  for (std::int64_t each = chunks;; each = ceil_div(each, 2)) {
    const std::int64_t splits = ceil_div(chunks, each);
    const double waves =
        std::max(1.0, static_cast<double>(tiles * splits) / static_cast<double>(kBlocksPerSm * machine.sm_count));
    const auto stages =
        static_cast<double>(ceil_div(each, kWarps) * ceil_div(std::min(p.k, chunk_length(p.n, p.k)) * size, kStageBytes));
    const double us = kGemvLaunch + std::max(1e6 * operand_bytes(p, large) / machine.read_bytes, waves * stages * stage) +
                      (splits > 1 ? kNextLaunch : 0);
    if (us < best.us) best = {us, splits};
    if (each == 1) return best;
  }
}

/// dot's large operand is along k; is the small one not?
bool small_is_strided(const Problem& p) { return !(a_along_k(p) && b_along_k(p)); }

/// `rows`: lines of the small operand.
double dot_us(const Problem& p, std::int64_t lines, std::int64_t rows, std::int64_t matrices, const Machine& machine) {
  const std::int64_t k = p.k;
  const double all = static_cast<double>(lines) * static_cast<double>(matrices);
  const double warps = all * (k <= kDotShort ? dot_lanes(k) / 32.0 : dot_warps(lines, k));
  const bool strided = small_is_strided(p), stages = strided && dot_stages(k);
  const double rate = std::min(machine.read_bytes / (stages ? kDotStaged : strided ? 4 * kDotStaged : 1), warps * kDotWarpBytes);
  return kDotLaunch + (stages ? kDotCopy : 0) +
         std::max(1e6 * 4 * all * static_cast<double>(k) / rate,
                  warps / machine.sm_count * (kDotLine + static_cast<double>(rows) * kDotRow));
}

}  // namespace

std::optional<GemvPlan> plan_gemv(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  if (std::min(p.m, p.n) > kGemvLines) return {};
  const bool any = forced.empty() || forced == "simt";
  const Machine machine = machine_of(gpu);
  GemvPlan plan{};
  plan.chunk = chunk_length(p.n, p.k), plan.chunks = chunk_count(p.n, p.k);
  double us = 1e30;
  const auto consider = [&](GemvKernel kernel, double time, std::int64_t splits) {
    if (any ? time < us : forced == name(kernel)) us = time, plan.kernel = kernel, plan.splits = splits;
  };
  if (serves_sweep(p, gpu) &&
      (forced.empty() || forced == name(GemvKernel::sweep))) {  // reads the same as gemv in one launch: always faster
    const bool of_b = p.m <= kGemvLines && p.b.col_stride == 1;
    const std::int64_t lines = of_b ? p.n : p.m, splits = sweep_splits(lines, p.k);
    plan.tiles = ceil_div(lines, kSweepColumns) * p.batches;
    plan.many = plan.tiles * splits > (splits == 1 ? 1 : 2) * gpu.sm_count;
    const double busy = std::min(1.0, static_cast<double>(plan.tiles * splits) / kSweepBlocksForMemory);
    const double exact =
        p.k <= kSweepExact ? static_cast<double>(ceil_div(plan.tiles, gpu.sm_count) * std::min(p.m, p.n)) * kSweepExactRow : 0;
    const double read = 1e6 * operand_bytes(p, of_b ? lines_of_b(p) : lines_of_a(p)) / (machine.read_bytes * busy);
    consider(GemvKernel::sweep, kSweepLaunch + exact + read, splits);
  } else {
    const Estimate e = gemv_estimate(p, plan.chunks, machine);
    consider(GemvKernel::gemv, e.us, e.splits);
  }
  if (serves_dot(p)) {
    const bool stream_b = dot_streams_b(p);
    const std::int64_t matrices = is_shared(p, stream_b ? p.b : p.a) ? 1 : p.batches;
    consider(GemvKernel::dot, dot_us(p, stream_b ? p.n : p.m, stream_b ? p.m : p.n, matrices, machine), 1);
  }
  if (us >= 1e30) return {};
  plan.seconds = 1e-6 * us;
  const std::int64_t planes = gemv_is_exact(p) ? 2 : 1;
  if (plan.kernel == GemvKernel::gemv && plan.splits > 1)
    plan.workspace_bytes = planes * p.batches * p.m * p.n * plan.chunks * accumulator_bytes(p.dtype);
  return plan;
}

}  // namespace xgemm::matmul
