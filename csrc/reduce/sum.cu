#include "reduce/kernels/launch.cuh"
#include "reduce/kernels/operators/sum.cuh"

namespace xgemm::reduce {

void launch_sum(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  launch_floating<Sum>(plan, in, out, workspace, stream);
}

}  // namespace xgemm::reduce
