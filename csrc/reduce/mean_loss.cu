#include "reduce/kernels/launch.cuh"
#include "reduce/kernels/operators/mean_loss.cuh"

namespace xgemm::reduce {

void launch_mean_loss(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  const RowPlan& rows = std::get<RowPlan>(plan.kernel);
  const auto mean = [&]<class Op>() { enqueue_rows<Op>(reduce_rows<Op>, rows, in, out, workspace, stream); };
  if (rows.in == DType::f32) return mean.template operator()<MeanLoss<float>>();
  mean.template operator()<MeanLoss<double>>();
}

}  // namespace xgemm::reduce
