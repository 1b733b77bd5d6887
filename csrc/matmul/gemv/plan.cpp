#include "matmul/gemv/plan.h"

#include <algorithm>

#include "device/integer.h"
#include "matmul/simt/plan.h"

namespace xgemm::matmul {
namespace {

// What the model counts with; an H200's.
constexpr double kHertz = 1.75e9, kLaunch = 1.5e-6, kCluster = 1.4e-6, kBytesPerSecond = 4.1e12;
constexpr double kBlocksForMemory = 50;  // of sweep

/// Blocks that run at once in clusters of `splits`: a cluster lies in one GPC, and GPCs differ in how many multiprocessors they
/// have.
std::int64_t blocks_at_once(std::int64_t splits, int sm_count) {
  const std::int64_t clusters = sm_count / splits - (splits == 1 ? 0 : splits == 2 ? 1 : 2);
  return splits * std::max<std::int64_t>(1, clusters);
}

bool fits(const Problem& p) {
  constexpr std::int64_t kLimit = (std::int64_t{1} << 31) - 4096;  // the kernels step over k in 32 bits
  for (const std::int64_t x : {p.m, p.n, p.k})
    if (x < 1 || x >= kLimit) return false;
  for (const std::int64_t x : {p.a.row_stride, p.a.col_stride, p.b.row_stride, p.b.col_stride})
    if (x < 0 || x >= kLimit / 4) return false;
  return true;
}

std::optional<SmallPlan> plan_sliced(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  if (std::min(p.m, p.n) <= kGemvLines && forced.empty()) return {};
  // By sizes, not by addresses: the splits, and with them bits, do not depend on alignment.
  const bool vectors = (a_along_k(p) ? p.k : p.m) % 4 == 0 && (b_along_k(p) ? p.k : p.n) % 4 == 0;
  std::optional<SmallPlan> best;
  for (std::size_t i = 0; i < kSlicedTiles.size(); ++i) {
    const SlicedTile& t = kSlicedTiles[i];
    const bool named = forced.starts_with(t.name), apart = forced.ends_with("apart");
    if (forced.find('_') != forced.npos && !named) continue;
    const std::int64_t tiles = ceil_div(p.m, t.rows) * ceil_div(p.n, t.columns);
    if (tiles >= (std::int64_t{1} << 27) / p.batches) continue;
    const std::int64_t chunks = ceil_div(p.k, kSlicedDepth);
    if (apart || (!named && p.k <= kSlicedApart)) {
      const double rounds = static_cast<double>(ceil_div(ceil_div(tiles * p.batches, kSlicedWarps), gpu.sm_count) * chunks);
      const double fixed = rounds / static_cast<double>(chunks) * t.fixed_apart;
      const double seconds = kLaunch + (rounds * (vectors ? t.round : t.round_single) + fixed) / kHertz;
      if (!best || seconds < best->seconds) best = SmallPlan{static_cast<SmallKernel>(i), tiles * p.batches, 1, true, seconds};
      if (apart) continue;
    }
    for (std::int64_t splits = 1; splits <= kSlicedMaxSplits; ++splits) {
      if (splits > 1 && chunks < kSlicedWarps * splits) break;
      const std::int64_t blocks = tiles * p.batches * splits, rounds = ceil_div(chunks, kSlicedWarps * splits);
      const double cycles = static_cast<double>(ceil_div(blocks, blocks_at_once(splits, gpu.sm_count))) *
                            (static_cast<double>(rounds) * (vectors ? t.round : t.round_single) + t.fixed);
      const double seconds = kLaunch + cycles / kHertz + (splits > 1 ? kCluster : 0);
      if (!best || seconds < best->seconds)
        best = SmallPlan{static_cast<SmallKernel>(i), tiles * p.batches, splits, false, seconds};
    }
  }
  return best;
}

/// The large operand has to lie along its lines: else dot.
std::optional<SmallPlan> plan_sweep(const Problem& p) {
  const bool of_b = p.m <= kGemvLines && p.b.col_stride == 1, of_a = p.n <= kGemvLines && p.a.row_stride == 1;
  if (!of_b && !of_a) return {};
  const std::int64_t lines = of_b ? p.n : p.m, tiles = ceil_div(lines, kSweepColumns) * p.batches;
  if (lines < 32 || tiles >= std::int64_t{1} << 27) return {};
  const Operand& w = of_b ? p.b : p.a;
  const bool shared = std::all_of(w.batch_stride, w.batch_stride + p.batch_dims, [](std::int64_t s) { return s == 0; });
  const std::int64_t splits = sweep_splits(lines, p.k);
  const double bytes =
      4.0 * static_cast<double>(lines) * static_cast<double>(p.k) * (shared ? 1.0 : static_cast<double>(p.batches));
  const double busy = std::min(1.0, static_cast<double>(tiles * splits) / kBlocksForMemory);
  return SmallPlan{SmallKernel::sweep, tiles, splits, false, kLaunch + bytes / (kBytesPerSecond * busy)};
}

}  // namespace

std::string_view name(SmallKernel k) { return k == SmallKernel::sweep ? "sweep" : info(k).name; }

std::int64_t sweep_splits(std::int64_t lines, std::int64_t k) {
  const std::int64_t tiles = ceil_div(lines, kSweepColumns);
  std::int64_t splits = 1;
  // One wave with room to spare, as clusters do not fill every multiprocessor; or two blocks a multiprocessor's worth.
  const std::int64_t most = tiles > 50 ? 528 : 100;
  while (splits < (tiles > 50 ? 2 : kSweepMaxSplits) && tiles * splits * 2 <= most && k >= splits * 2 * kSweepWarps * kSweepDepth)
    splits *= 2;
  return splits;
}

std::optional<SmallPlan> plan_small(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  if (p.dtype != DType::f32 || p.precision == Precision::ieee || p.batch_invariant || p.gated || p.prepared_b || !fits(p))
    return {};
  if (gpu.major != 9) return {};  // clusters, 227 KiB of shared memory, and fp64 on the tensor cores at fp32's rate
  if (forced == "sweep") return plan_sweep(p);
  if (forced.starts_with("sliced")) return plan_sliced(p, gpu, forced);
  if (!forced.empty()) return {};
  const auto sweep = plan_sweep(p);
  if (p.precision != Precision::highest) return sweep;  // TF32 is faster than the rest
  const auto sliced = plan_sliced(p, gpu, forced);
  return sweep && (!sliced || sweep->seconds < sliced->seconds) ? sweep : sliced;
}

}  // namespace xgemm::matmul
