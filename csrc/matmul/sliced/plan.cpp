#include "matmul/sliced/plan.h"

#include <string>

#include "device/integer.h"
#include "matmul/plan/legality.h"
#include "matmul/plan/roofline.h"

namespace xgemm::matmul {
namespace {

constexpr double kLaunch = 0.96, kCluster = 2.17;  // microseconds; a cluster adds splits, each wave
constexpr double kSingles = 1.2;                   // k-blocks whose operands are loaded by element, relative to quads
// Warps that have a tile each: a CTA's start, and 16 k of all warps, relative to 128 k that they share.
constexpr double kApartStart = 2.19, kApartBlock = 0.945;
constexpr std::int64_t kLongestApart = 512;

}  // namespace

std::optional<SlicedPlan> plan_sliced(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  if (!serves_sliced(p, gpu) || leaves_out_family(forced, "sliced")) return {};
  const bool named = names_a_tile(forced);
  std::optional<SlicedPlan> best;
  for (std::size_t i = 0; i < 2 * kSlicedTiles.size(); ++i) {
    TileInfo t = kSlicedTiles[i / 2];
    SlicedPlan plan{};
    plan.tile = static_cast<SlicedTile>(i / 2), plan.apart = i % 2 == 0;
    if (named ? forced != std::string(t.name) + (plan.apart ? "_apart" : "") : plan.apart && p.k > kLongestApart) continue;
    plan.tiles = ceil_div(p.m, t.m) * ceil_div(p.n, t.n) * p.batches;
    if (plan.apart) t.k = kSlicedDepth, t.start *= kApartStart, t.block *= kApartBlock;
    t.more = t.block *= has_quads_by_size(p) ? 1 : kSingles;
    for (plan.splits = 1; plan.splits <= (plan.apart ? 1 : kSlicedMaxSplits); ++plan.splits) {
      if (plan.splits > 1 && ceil_div(p.k, kSlicedDepth) < kSlicedWarps * plan.splits) break;
      const std::int64_t at_once = plan.splits * clusters_at_once(plan.splits, gpu.sm_count),
                         ctas = plan.apart ? ceil_div(plan.tiles, kSlicedWarps) : plan.tiles * plan.splits;
      const double joins = plan.splits > 1 ? static_cast<double>(ceil_div(ctas, at_once)) * kCluster : 0;
      plan.seconds = 1e-6 * (kLaunch + joins + compute_us(t, ctas, ceil_div(p.k, plan.splits), static_cast<int>(at_once)));
      if (!best || plan.seconds < best->seconds) best = plan;
    }
  }
  return best;
}

}  // namespace xgemm::matmul
