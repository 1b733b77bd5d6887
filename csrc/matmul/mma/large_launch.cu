#include "matmul/launch.h"
#include "matmul/mma/large.cuh"

namespace xgemm::matmul {

extern template void launch_large_type<half, 1>(const LargePlan&, const LargeArguments&, cudaStream_t);
extern template void launch_large_type<bf16, 1>(const LargePlan&, const LargeArguments&, cudaStream_t);
extern template void launch_large_type<half, 2>(const LargePlan&, const LargeArguments&, cudaStream_t);

void launch_large(const Problem& p, const LargePlan& plan, unsigned char* workspace, float* partials, cudaStream_t stream) {
  launch_passes(p, plan.parts, plan.a, plan.b, {}, workspace, nullptr, stream);
  const LargeArguments g = large_arguments(p, plan, workspace, partials);
  (plan.parts == 2          ? launch_large_type<half, 2>
   : p.dtype == DType::bf16 ? launch_large_type<bf16, 1>
                            : launch_large_type<half, 1>)(plan, g, stream);
  if (plan.splits > 1)
    (plan.parts > 0           ? launch_sum_splits<float>
     : p.dtype == DType::bf16 ? launch_sum_splits<bf16>
                              : launch_sum_splits<half>)(p, plan.splits, partials, stream);
  if (plan.parts == 0) return;
  launch_simt<float>(p, plan.fallback, nullptr, stream,
                     {.a = g.a.lines, .b = g.b.lines, .batch_step_a = plan.a.batch_step, .batch_step_b = plan.b.batch_step});
}

}  // namespace xgemm::matmul
