#include "attention/mma/plan.h"

namespace xgemm::attention {
std::optional<Plan> plan_few_rows(Problem problem, std::int64_t shared_bytes) {
  if (problem.sq * problem.group > kMmaRows || problem.batch_invariant) return {};
  problem.table = kMmaTiles;
  if (has_mask(problem.masking)) problem.most_split_tiles = kMmaMaskTiles;
  std::optional<Plan> plan = plan_tiles(problem);
  if (!plan) return {};
  const bool masked = has_mask(plan->masking);
  if (mma_shared_bytes(plan->info(), masked) + mma_static_bytes(plan->info(), masked) > shared_bytes) return {};
  // Else some SMs would have two of these CTAs and others none.
  plan->alone = plan->items() <= problem.sm_count && kMmaAloneBytes + mma_static_bytes(plan->info(), masked) <= shared_bytes;
  plan->ctas = static_cast<int>(plan->items());
  plan->mask_tiles = 0;  // each CTA looks at its split's mask
  plan->through_memory = plan->splits > 1;
  return plan;
}

std::optional<SequencePlan> plan_mma_sequences(const Problem& problem, const Sequences& sequences, std::int64_t shared_bytes) {
  if (const std::optional<Plan> plan = plan_few_rows(problem, shared_bytes))
    return plan_sequences(problem, sequences, *plan, SequenceKernel::few_rows);
  if (const std::optional<Plan> plan = plan_many_rows(problem, shared_bytes))
    return plan_sequences(problem, sequences, *plan, SequenceKernel::many_rows);
  return {};
}

std::optional<Plan> plan_many_rows(Problem problem, std::int64_t shared_bytes) {
  problem.table = kManyRowsTiles, problem.portable = true;
  std::optional<Plan> plan = plan_tiles(problem);
  if (plan && many_rows_shared_bytes(plan->info()) > shared_bytes) plan.reset();
  return plan;
}

}  // namespace xgemm::attention
