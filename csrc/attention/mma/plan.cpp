#include "attention/mma/plan.h"

#include <algorithm>
#include <utility>

namespace xgemm::attention {
namespace {

/// Do CTAs of equal length, `slots` of which run at a time, read memory at its full rate from start to end? The last ones do so
/// only if they are on most SMs (measured on an H200: 64 of 132 CTAs read at 60 %, 128 at 100 %).
bool keep_memory_busy(std::int64_t ctas, std::int64_t slots, int sm_count) {
  constexpr double kSms = 0.82, kGathersFrom = 0.93;  // splits through memory take about 0.07 more
  const std::int64_t rest = ctas % slots;
  const double last = rest == 0 ? 0 : std::max(static_cast<double>(rest), kSms * sm_count);
  return static_cast<double>(ctas) >= kGathersFrom * (static_cast<double>(ctas - rest) + last);
}

/// Does each CTA compute all splits of a tile? Masked tiles differ in length. Between one CTA per SM and two, some SMs would have
/// one and others two.
bool gathers(const Plan& plan, int sm_count) {
  if (!mma_gathers(plan.info()) || plan.masking != Masking::edges) return false;
  if (plan.tiles <= sm_count) return keep_memory_busy(plan.tiles, sm_count, sm_count);
  const std::int64_t slots = std::int64_t{sm_count} * plan.info().ctas;
  return plan.tiles > slots - slots / 16 && keep_memory_busy(plan.tiles, slots, sm_count);
}

}  // namespace

std::optional<Plan> plan_few_rows(Problem problem, std::int64_t shared_bytes) {
  if (problem.sq * problem.group > kMmaRows || problem.batch_invariant) return {};
  problem.table = kMmaTiles;
  std::optional<Plan> plan = plan_tiles(problem);
  if (!plan) return {};
  const bool masked = has_mask(plan->masking);
  if (mma_shared_bytes(plan->info(), masked) + mma_static_bytes(plan->info(), masked) > shared_bytes) return {};
  if (masked && plan->split_tiles > kMmaMaskTiles) return {};
  if (gathers(*plan, problem.sm_count))
    plan->own_splits = std::exchange(plan->splits, 1),
    plan->alone = plan->tiles <= problem.sm_count && kMmaAloneBytes + mma_static_bytes(plan->info(), false) <= shared_bytes;
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
