#include "reduce/kernels/instantiate.cuh"
#include "reduce/kernels/operators/cross_entropy.cuh"

namespace xgemm::reduce {

void launch_cross_entropy(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  if (reduction_of(plan).kind == Kind::cross_entropy) return launch_floating<CrossEntropy>(plan, in, out, workspace, stream);
  // Losses are one contiguous row of the type in which they were computed.
  const RowPlan& row = std::get<RowPlan>(plan.kernel);
  const auto mean = [&]<class Op>() { enqueue_rows<Op>(reduce_rows<Op>, row, in, out, workspace, stream); };
  if (row.in == DType::f32) return mean.template operator()<MeanLoss<float>>();
  mean.template operator()<MeanLoss<double>>();
}

}  // namespace xgemm::reduce
