#include "reduce/kernels/launch.cuh"
#include "reduce/kernels/operators/cross_entropy.cuh"

namespace xgemm::reduce {

void launch_cross_entropy(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  launch_floating<CrossEntropy>(plan, in, out, workspace, stream);
}

}  // namespace xgemm::reduce
