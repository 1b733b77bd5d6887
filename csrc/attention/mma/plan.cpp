#include "attention/mma/plan.h"

namespace xgemm::attention {

std::optional<WgmmaPlan> plan_mma(WgmmaProblem problem, std::int64_t shared_bytes) {
  problem.table = kMmaTiles;  // those of one warpgroup: few rows only
  std::optional<WgmmaPlan> plan = plan_wgmma(problem);
  if (!plan || mma_shared_bytes(plan->info(), mma_row_warps(plan->part_rows)) > shared_bytes) return {};
  plan->ctas = static_cast<int>(plan->items());
  plan->through_memory = plan->parts > 1;
  return plan;
}

}  // namespace xgemm::attention
