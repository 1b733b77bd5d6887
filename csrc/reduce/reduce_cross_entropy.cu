#include "reduce/kernels/instantiate.cuh"
#include "reduce/kernels/operators/cross_entropy.cuh"

namespace xgemm::reduce {

void launch_cross_entropy(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  if (plan.kind == Kind::cross_entropy) return launch_floating<CrossEntropy>(plan, in, out, workspace, stream);
  if (plan.kind == Kind::smooth_cross_entropy) return launch_floating<SmoothCrossEntropy>(plan, in, out, workspace, stream);
  // Losses are one contiguous row of the type in which they were computed.
  if (plan.in == DType::f32) return launch_rows<MeanLoss<float>>(plan, in, out, workspace, stream);
  launch_rows<MeanLoss<double>>(plan, in, out, workspace, stream);
}

}  // namespace xgemm::reduce
