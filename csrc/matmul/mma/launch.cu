#include "matmul/fp16_split/passes.h"
#include "matmul/launch.h"
#include "matmul/mma/arguments.cuh"

namespace xgemm::matmul {

template <class T, int kParts>  // in <type>.cu
void launch_mma_type(const MmaPlan& plan, const MmaArguments& g, cudaStream_t stream);

void launch_mma(const Problem& p, const MmaPlan& plan, unsigned char* workspace, float* partials, cudaStream_t stream) {
  launch_passes(p, plan.parts, plan.a, plan.b, {}, workspace, nullptr, stream);
  const MmaArguments g = mma_arguments(p, plan, workspace, partials);
  const bool fp32 = p.dtype == DType::f32, is_bf16 = p.dtype == DType::bf16;
  (is_tf32(plan.tile)         ? launch_mma_type<float, 1>
   : has_two_parts(plan.tile) ? launch_mma_type<half, 2>
   : is_bf16                  ? launch_mma_type<bf16, 1>
                              : launch_mma_type<half, 1>)(plan, g, stream);
  if (plan.splits > 1)
    (fp32      ? launch_sum_splits<float>
     : is_bf16 ? launch_sum_splits<bf16>
               : launch_sum_splits<half>)(p, plan.splits, partials, stream);
  if (plan.parts == 0) return;
  launch_simt<float>(p, plan.fallback, nullptr, stream,
                     {.a = g.a.lines, .b = g.b.lines, .batch_step_a = plan.a.batch_step, .batch_step_b = plan.b.batch_step});
}

}  // namespace xgemm::matmul
