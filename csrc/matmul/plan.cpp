#include "matmul/plan.h"

namespace xgemm::matmul {

Plans make_plans(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  Plans plans{plan_fp64(p, gpu, forced),   plan_mma(p, gpu, forced),
              plan_small(p, gpu, forced),  plan_tf32(p, gpu, forced),
              plan_bf16x3(p, gpu, forced), plan_wgmma(p, gpu, forced),
              plan_simt(p, gpu, forced),   p.gated ? plan_simt(up_product(p, nullptr), gpu, forced) : SimtPlan{}};
  const auto swapped = forced == "bf16x3" ? std::nullopt : plan_bf16x3(swap_ab(p), gpu, forced);
  if (swapped && (!plans.bf16x3 || swapped->seconds < plans.bf16x3->seconds)) plans.bf16x3 = swapped;
  if (plans.bf16x3) {
    const double other = plans.tensor ? plans.tensor->seconds : plans.simt.seconds;
    if (forced.empty() && other <= plans.bf16x3->seconds)
      plans.bf16x3.reset();
    else
      plans.tensor.reset();
  }
  if (plans.small) {
    const double other = plans.bf16x3 ? plans.bf16x3->seconds : plans.tensor ? plans.tensor->seconds : plans.simt.seconds;
    const bool for_gemv = plans.small->kernel == SmallKernel::sweep && plans.simt.kernel == SimtKernel::gemv;  // always faster
    if (forced.empty() && !for_gemv && other <= plans.small->seconds)
      plans.small.reset();
    else
      plans.bf16x3.reset(), plans.tensor.reset();
  }
  if (plans.tf32) {
    const double other = plans.tensor ? plans.tensor->seconds : plans.bf16x3 ? plans.bf16x3->seconds : plans.simt.seconds;
    // dot and sweep are as fast for few rows, and more exact.
    if (forced.empty() && (other <= plans.tf32->seconds || plans.simt.kernel == SimtKernel::dot || plans.small))
      plans.tf32.reset();
    else
      plans.bf16x3.reset(), plans.tensor.reset();
  }
  if (plans.mma) {  // the bits of `tensor`, and so only where that would do the problem
    if (forced.empty() && !(plans.tensor && mma_pays(*plans.mma, *plans.tensor)))
      plans.mma.reset();
    else
      plans.tensor.reset();
  }
  return plans;
}

}  // namespace xgemm::matmul
