#include "reduce/kernels/launch_columns.cuh"
#include "reduce/kernels/operators/cross_entropy.cuh"

namespace xgemm::reduce {

void launch_cross_entropy_columns(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  if (reduction_of(plan).loss.smoothing != 0) return launch_floating_columns<CrossEntropy>(plan, in, out, workspace, stream);
  launch_floating_columns<PlainCrossEntropy>(plan, in, out, workspace, stream);
}

}  // namespace xgemm::reduce
