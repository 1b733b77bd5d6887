#include <algorithm>

#include "attention/wgmma/wide.h"

namespace xgemm::attention {

std::optional<Plan> plan_wide(Problem problem, bool latent) {
  const Tile& tile = kWideTiles[latent];
  problem.table = {&tile, 1}, problem.portable = true;
  std::optional<Plan> plan = plan_tiles(problem);
  if (!plan || problem.batch_invariant) return plan;
  // As many splits as end first, if a CTA's start and end take as long as kStart steps.
  constexpr std::int64_t kStart = 3, kFewestSteps = 4;
  const std::int64_t keys = tile.keys, first = problem.key_begin / keys, steps = ceil_div(problem.key_end, keys) - first;
  std::int64_t best = 0, least = 0;
  for (std::int64_t splits = 1; splits == 1 || splits * kFewestSteps <= steps; ++splits) {
    const std::int64_t time = ceil_div(plan->tiles * splits, problem.sm_count) * (ceil_div(steps, splits) + kStart);
    if (best == 0 || time < least) best = splits, least = time;
  }
  const std::int64_t split_steps = std::max<std::int64_t>(ceil_div(steps, best), 1);
  plan->first_split = static_cast<int>(first / split_steps);
  plan->splits = static_cast<int>(std::max<std::int64_t>(ceil_div(first + steps, split_steps) - plan->first_split, 1));
  plan->split_tiles = static_cast<int>(split_steps);
  plan->through_memory = plan->splits > 1;
  plan->ctas = static_cast<int>(plan->items());
  return plan;
}

}  // namespace xgemm::attention
