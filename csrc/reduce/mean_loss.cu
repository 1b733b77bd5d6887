#include "reduce/kernels/launch_rows.cuh"
#include "reduce/kernels/operators/mean_loss.cuh"

namespace xgemm::reduce {

void launch_mean_loss(const RowPlan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  const auto mean = [&]<class Op>() { enqueue_rows<Op>(reduce_rows<Op>, plan, in, out, workspace, stream); };
  if (plan.in == DType::f32) return mean.template operator()<MeanLoss<float>>();
  mean.template operator()<MeanLoss<double>>();
}

}  // namespace xgemm::reduce
