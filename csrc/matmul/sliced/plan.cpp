#include "matmul/sliced/plan.h"

#include <algorithm>

#include "device/integer.h"
#include "matmul/forced.h"
#include "matmul/machine.h"

namespace xgemm::matmul {
namespace {

// Seconds; kCluster: per wave if a cluster adds splits (measured, docs/log/matmul.md, "3652 times of 744 products").
constexpr double kLaunch = 1.17e-6, kCluster = 2.25e-6;
constexpr double kNextBlock = 2930;  // cycles to replace a finished block; kLaunch has that of the first wave
constexpr double kApart = 0.945;     // a round of warps with tiles of their own, which wait for no other warp

}  // namespace

std::optional<SlicedPlan> plan_sliced(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  if (!serves_one_launch_fp32(p, gpu) || leaves_out_family(forced, "sliced")) return {};
  const Machine machine = machine_of(gpu);
  const bool vectors = has_quads_by_size(p);
  std::optional<SlicedPlan> best;
  for (std::size_t i = 0; i < kSlicedTiles.size(); ++i) {
    const SlicedTileInfo& t = kSlicedTiles[i];
    const bool named = forced.starts_with(t.name), apart = forced.ends_with("apart");
    if (names_a_tile(forced) && !named) continue;
    const std::int64_t tiles = ceil_div(p.m, t.rows) * ceil_div(p.n, t.columns);
    if (tiles >= (std::int64_t{1} << 27) / p.batches) continue;
    const std::int64_t chunks = ceil_div(p.k, kSlicedDepth);
    if (apart || (!named && p.k <= kSlicedApart)) {
      const double rounds = static_cast<double>(ceil_div(ceil_div(tiles * p.batches, kSlicedWarps), machine.sm_count) * chunks);
      const double fixed = rounds / static_cast<double>(chunks) * t.fixed_apart;
      const double seconds =
          kLaunch + (rounds * kApart * (vectors ? t.round : t.round_single) + fixed) / machine.hertz_cuda_cores;
      if (!best || seconds < best->seconds) best = SlicedPlan{static_cast<SlicedTile>(i), tiles * p.batches, 1, true, seconds};
      if (apart) continue;
    }
    for (std::int64_t splits = 1; splits <= kSlicedMaxSplits; ++splits) {
      if (splits > 1 && chunks < kSlicedWarps * splits) break;
      const std::int64_t blocks = tiles * p.batches * splits, rounds = ceil_div(chunks, kSlicedWarps * splits);
      const auto waves = static_cast<double>(ceil_div(blocks, splits * clusters_at_once(splits, machine.sm_count)));
      const double cycles =
          waves * (static_cast<double>(rounds) * (vectors ? t.round : t.round_single) + t.fixed) + (waves - 1) * kNextBlock;
      const double seconds = kLaunch + cycles / machine.hertz_cuda_cores + (splits > 1 ? waves * kCluster : 0);
      if (!best || seconds < best->seconds)
        best = SlicedPlan{static_cast<SlicedTile>(i), tiles * p.batches, splits, false, seconds};
    }
  }
  return best;
}

}  // namespace xgemm::matmul
