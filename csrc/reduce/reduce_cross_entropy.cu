#include "reduce/kernels/instantiate.cuh"
#include "reduce/kernels/operators/cross_entropy.cuh"

namespace xgemm::reduce {

void launch_cross_entropy(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  const Kind kind = reduction_of(plan).kind;
  if (kind == Kind::cross_entropy) return launch_floating<CrossEntropy>(plan, in, out, workspace, stream);
  if (kind == Kind::smooth_cross_entropy) return launch_floating<SmoothCrossEntropy>(plan, in, out, workspace, stream);
  // Losses are one contiguous row of the type in which they were computed.
  const RowPlan& row = std::get<RowPlan>(plan.kernel);
  if (row.in == DType::f32) return launch_kernel<MeanLoss<float>>(row, in, out, workspace, stream);
  launch_kernel<MeanLoss<double>>(row, in, out, workspace, stream);
}

}  // namespace xgemm::reduce
