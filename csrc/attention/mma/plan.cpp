#include "attention/mma/plan.h"

namespace xgemm::attention {

std::optional<WgmmaPlan> plan_mma(WgmmaProblem problem, std::int64_t shared_bytes) {
  if (problem.sq * problem.group > kMmaRows) return {};
  problem.table = kMmaTiles;
  std::optional<WgmmaPlan> plan = plan_wgmma(problem);
  if (!plan || mma_shared_bytes(plan->info()) > shared_bytes) return {};
  plan->ctas = static_cast<int>(plan->items());
  plan->through_memory = plan->splits > 1;
  return plan;
}

}  // namespace xgemm::attention
