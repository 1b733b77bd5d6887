#include "reduce/kernels/launch.cuh"
#include "reduce/kernels/operators/maximum.cuh"

namespace xgemm::reduce {

void launch_maximum(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  launch_floating<Maximum>(plan, in, out, workspace, stream);
}

}  // namespace xgemm::reduce
