#include "reduce/kernels/launch.cuh"
#include "reduce/kernels/operators/index.cuh"

void xgemm::reduce::launch_index(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  launch_floating<MaximumIndex>(plan, in, out, workspace, stream);
}
