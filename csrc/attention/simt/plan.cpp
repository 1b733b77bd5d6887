#include "attention/simt/plan.h"

#include <algorithm>

namespace xgemm::attention {
namespace {

/// A tile of 64 rows takes about as long as this many tiles of 8, which are limited by shared memory.
constexpr std::int64_t kFewTiles = 3;

/// The first of kSimtTiles (ascending head sizes) that fits. Many and few rows of one head size find tiles of the same `keys`.
int choose_tile(const SimtProblem& p) {
  for (const bool few : {true, false})
    for (std::size_t i = 0; i < kSimtTiles.size(); ++i) {
      const SimtTile& t = kSimtTiles[i];
      if (t.fp64 != p.fp64 || (t.thread_rows == 1) != few || p.d > t.query_size() || p.dv > t.head_size) continue;
      if (!few || p.rows <= kFewTiles * t.rows()) return static_cast<int>(i);
    }
  return static_cast<int>(kSimtTiles.size()) - 1;  // no head is larger (call.cpp)
}

}  // namespace

SimtPlan plan_simt(const SimtProblem& p) {
  SimtPlan plan;
  plan.tile = choose_tile(p);
  const SimtTile& tile = kSimtTiles[static_cast<std::size_t>(plan.tile)];
  plan.row_tiles = (p.rows + tile.rows() - 1) / tile.rows();
  plan.first_split = static_cast<int>(p.key_begin / kSplitKeys);
  plan.splits = static_cast<int>(std::max<std::int64_t>((p.key_end + kSplitKeys - 1) / kSplitKeys - plan.first_split, 1));
  const std::int64_t row_blocks = plan.row_tiles * p.batches;
  // Partial results of all splits are kept only when the rows are too few for one wave, so the workspace never grows as Sq * Sk.
  plan.parallel = plan.splits > 1 && row_blocks < std::int64_t{p.sm_count} * tile.blocks;
  plan.blocks = row_blocks * (plan.parallel ? plan.splits : 1);
  plan.partials = plan.splits == 1 ? 0 : plan.parallel ? plan.splits : 1;
  return plan;
}

}  // namespace xgemm::attention
