#include "matmul/gemv/plan.h"

#include <algorithm>

#include "device/integer.h"
#include "matmul/machine.h"
#include "matmul/simt/plan.h"

namespace xgemm::matmul {
namespace {

// Measured, docs/log/matmul.md ("Few rows, fp32, weight K-major", "At most 4 rows or columns, fp32").
constexpr double kGemvLaunch = 2.6e-6, kDotLaunch = 1.35e-6, kSweepLaunch = 3.3e-6;  // seconds
// gemv, seconds: a block's start and end; a warp's stage, whose products a lane adds one after another; that times the bytes
// of an element if the large operand is copied one element at a time.
constexpr double kGemvBlock = 1.7e-6, kGemvStage = 0.7e-6, kGemvSingles = 3.1e-6;
constexpr double kDotBytesPerSecondAndWarp = 3.3e9;  // few warps do not reach the memory's rate: each has some loads in flight
constexpr double kDotStridedBytes = 0.74e12;         // per second, if the small operand is loaded one element at a time
constexpr double kDotStagedBytes = 2.7e12;           // per second, if it is copied to shared memory
constexpr double kDotCopy = 3.0e-6;                  // seconds until that copy is there
constexpr double kDotLine = 58e-9, kDotRow = 22e-9;  // seconds of an SM for a warp's start, and for its lanes' sum of each row
constexpr double kSweepBlocksForMemory = 20;         // fewer do not reach the memory's rate
constexpr double kSweepExactRow = 1.85e-6;           // seconds of an SM for a tile's row if each product's rounding is kept
constexpr std::int64_t kSweepClusterK = 512;         // below, a cluster's start and meeting take longer than its k

struct Estimate {
  double seconds;
  std::int64_t splits;
};

/// gemv reads its large operand at the memory's rate if no warp has too many stages; a second launch has to pay for itself.
Estimate gemv_estimate(const Problem& p, std::int64_t chunks, const Machine& machine) {
  constexpr std::int64_t kWarps = 4, kStageBytes = 128, kBlocksPerSm = 2;  // as in gemv.cuh
  const std::int64_t length = std::min(p.k, chunk_length(p.n, p.k)) * static_cast<std::int64_t>(size_of(p.dtype));
  const OperandLines large = p.m <= kGemvLines ? lines_of_b(p) : lines_of_a(p);
  const double stage = kGemvStage + (has_vectors(p, large, 4) ? 0 : kGemvSingles / static_cast<double>(size_of(p.dtype)));
  const double tiles = static_cast<double>(ceil_div(std::max(p.m, p.n), 32)) * static_cast<double>(p.batches);
  const double bytes = static_cast<double>(size_of(p.dtype)) * static_cast<double>(std::max(p.m, p.n)) *
                       static_cast<double>(p.k) * static_cast<double>(p.batches);
  Estimate best{1e30, 1};
  for (std::int64_t splits = 1; splits <= chunks; splits *= 2) {
    const std::int64_t per_block = ceil_div(chunks, splits);
    const double blocks = tiles * static_cast<double>(ceil_div(chunks, per_block));
    const double waves = std::max(1.0, blocks / static_cast<double>(kBlocksPerSm * machine.sm_count));
    const auto stages = static_cast<double>(ceil_div(per_block, kWarps) * ceil_div(length, kStageBytes));
    const double seconds = std::max(bytes / machine.read_bytes, waves * (kGemvBlock + stages * stage)) +
                           (per_block < chunks ? machine.next_launch : 0);
    if (seconds < best.seconds) best = {seconds, ceil_div(chunks, per_block)};
  }
  return best;
}

bool dot_serves(const Problem& p) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 31;
  return p.dtype == DType::f32 && !p.batch_invariant && p.k > 0 && p.k < kLimit &&
         (dot_streams_b(p) || (p.n <= kGemvLines && a_along_k(p))) && std::max(p.m, p.n) < kLimit / p.batches;
}

/// dot's large operand is along k; is the small one not?
bool small_is_strided(const Problem& p) { return !(a_along_k(p) && b_along_k(p)); }

/// Without kDotCopy. `rows`: lines of the small operand.
double dot_seconds(const Problem& p, std::int64_t lines, std::int64_t rows, std::int64_t matrices, const Machine& machine) {
  const std::int64_t k = p.k;
  const double all = static_cast<double>(lines) * static_cast<double>(matrices);
  const double warps = all * (k <= kDotShort ? dot_lanes(k) / 32.0 : dot_warps(lines, k));
  const double most = !small_is_strided(p) ? machine.read_bytes : dot_stages(k) ? kDotStagedBytes : kDotStridedBytes;
  const double rate = std::min(most, warps * kDotBytesPerSecondAndWarp);
  const double line = kDotLine + static_cast<double>(rows) * kDotRow;
  return kDotLaunch + std::max(4 * all * static_cast<double>(k) / rate, warps / machine.sm_count * line);
}

/// Compares with gemv, which copies its small operand to shared memory once per block whatever its layout, and splits a line
/// among blocks. Estimated for one row: else a row's bits would depend on M and the batch.
bool dot_pays(const Problem& p, std::int64_t lines, const Machine& machine) {
  Problem row;
  row.m = 1, row.n = lines, row.k = p.k;
  row.b = {.row_stride = 1, .col_stride = 4};  // vectors, as a row's bits must not depend on strides
  return dot_seconds(p, lines, 1, 1, machine) <= kGemvLaunch + gemv_estimate(row, chunk_count(lines, p.k), machine).seconds;
}

}  // namespace

int dot_warps(std::int64_t lines, std::int64_t k) {
  int warps = 1;
  while (warps < kDotMaxWarps && lines * warps < 2112 && k >= 512 * warps) warps *= 2;
  return warps;
}

int dot_lanes(std::int64_t k) {
  const std::int64_t quads = ceil_div(k, 4), each = k % 4 == 0 ? 4 : 2;  // of a lane; single elements need more lanes
  int lanes = 4;
  while (lanes < 32 && lanes * each < quads) lanes *= 2;
  return lanes;
}

int sweep_strips(std::int64_t k) {
  // A group of k each while they last: only a strip's first group keeps the rounding of its products.
  const std::int64_t groups = round_up_pow2(ceil_div(k, kSweepDepth));
  return static_cast<int>(std::clamp<std::int64_t>(groups, 4, kSweepStrips));
}

std::int64_t sweep_splits(std::int64_t lines, std::int64_t k) {
  const std::int64_t tiles = ceil_div(lines, kSweepColumns);
  std::int64_t splits = 1;
  // One wave with room to spare, as clusters do not fill every SM; or the work of two blocks per SM.
  const std::int64_t most = tiles > 50 ? 528 : 100;
  while (splits < (tiles > 50 ? 2 : kSweepMaxSplits) && tiles * splits * 2 <= most &&
         k >= std::max<std::int64_t>(kSweepClusterK, splits * 2 * kSweepStrips * kSweepDepth))
    splits *= 2;
  // By two CTAs a tile 48 to 64 of 132 SMs would have nothing to read (docs/log/matmul.md).
  constexpr std::int64_t kThreeFrom = 34, kThreeTo = 42, kThreeK = 8192;
  return tiles >= kThreeFrom && tiles <= kThreeTo && k >= kThreeK ? 3 : splits;
}

std::optional<GemvPlan> plan_gemv(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  if (std::min(p.m, p.n) > kGemvLines) return {};
  const bool any = forced.empty() || forced == "simt";
  const Machine machine = machine_of(gpu);
  GemvPlan plan{.kernel = GemvKernel::gemv,
                .chunk = chunk_length(p.n, p.k),
                .chunks = chunk_count(p.n, p.k),
                .splits = 1,
                .tiles = 0,
                .workspace_bytes = 0,
                .many = false,
                .seconds = 0};
  const bool stream_b = dot_streams_b(p);
  const std::int64_t lines = stream_b ? p.n : p.m;
  if (dot_serves(p) && (any ? dot_pays(p, lines, machine) : forced == name(GemvKernel::dot))) {
    plan.kernel = GemvKernel::dot;
    const std::int64_t matrices = is_shared(p, stream_b ? p.b : p.a) ? 1 : p.batches;
    plan.seconds = dot_seconds(p, lines, stream_b ? p.m : p.n, matrices, machine);
    if (small_is_strided(p) && dot_stages(p.k)) plan.seconds += kDotCopy;
    return plan;
  }
  if (!any && forced != name(GemvKernel::gemv)) return {};
  const Estimate e = gemv_estimate(p, plan.chunks, machine);
  plan.splits = e.splits, plan.seconds = kGemvLaunch + e.seconds;
  const std::int64_t planes = gemv_is_exact(p) ? 2 : 1;
  if (plan.splits > 1) plan.workspace_bytes = planes * p.batches * p.m * p.n * plan.chunks * accumulator_bytes(p.dtype);
  return plan;
}

std::optional<GemvPlan> plan_sweep(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  if (!serves_one_launch_fp32(p, gpu) || (!forced.empty() && forced != name(GemvKernel::sweep))) return {};
  const bool of_b = p.m <= kGemvLines && p.b.col_stride == 1, of_a = p.n <= kGemvLines && p.a.row_stride == 1;
  if (!of_b && !of_a) return {};
  const std::int64_t lines = of_b ? p.n : p.m, tiles = ceil_div(lines, kSweepColumns) * p.batches;
  if (lines < 32 || tiles >= std::int64_t{1} << 27) return {};
  const std::int64_t splits = sweep_splits(lines, p.k);
  const double busy = std::min(1.0, static_cast<double>(tiles * splits) / kSweepBlocksForMemory);
  const double read = operand_bytes(p, of_b ? lines_of_b(p) : lines_of_a(p)) / (machine_of(gpu).read_bytes * busy);
  const double exact = p.k <= kSweepExact ? static_cast<double>(tiles * std::min(p.m, p.n)) * kSweepExactRow / gpu.sm_count : 0;
  return GemvPlan{.kernel = GemvKernel::sweep,
                  .chunk = 0,
                  .chunks = 0,
                  .splits = splits,
                  .tiles = tiles,
                  .workspace_bytes = 0,
                  .many = tiles * splits > (splits == 1 ? 1 : 2) * gpu.sm_count,
                  .seconds = kSweepLaunch + exact + read};
}

}  // namespace xgemm::matmul
