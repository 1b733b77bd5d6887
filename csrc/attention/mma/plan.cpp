#include "attention/mma/plan.h"

#include <algorithm>
#include <utility>

namespace xgemm::attention {
namespace {

/// Do so many CTAs of equal length read memory at its full rate from start to end? `slots`: how many run at a time. The last
/// ones do so only if they are on most SMs (measured on an H200: 64 of 132 CTAs read at 60 %, 128 at 100 %).
bool keep_memory_busy(std::int64_t ctas, std::int64_t slots, int sm_count) {
  constexpr double kSms = 0.82, kGathersFrom = 0.93;  // splits through memory take about 0.07 more
  const std::int64_t rest = ctas % slots;
  const double last = rest == 0 ? 0 : std::max(static_cast<double>(rest), kSms * sm_count);
  return static_cast<double>(ctas) >= kGathersFrom * (static_cast<double>(ctas - rest) + last);
}

}  // namespace

std::optional<WgmmaPlan> plan_mma(WgmmaProblem problem, std::int64_t shared_bytes) {
  if (problem.sq * problem.group > kMmaRows) return {};
  problem.table = kMmaTiles;
  std::optional<WgmmaPlan> plan = plan_wgmma(problem);
  if (!plan || mma_shared_bytes(plan->info()) > shared_bytes) return {};
  // Masked rows differ in length.
  if (mma_gathers(plan->info()) && problem.masking == Masking::edges &&
      keep_memory_busy(plan->tiles, std::int64_t{problem.sm_count} * plan->info().ctas, problem.sm_count))
    plan->own_splits = std::exchange(plan->splits, 1);
  plan->ctas = static_cast<int>(plan->items());
  plan->through_memory = plan->splits > 1;
  return plan;
}

}  // namespace xgemm::attention
