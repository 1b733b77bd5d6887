#include "reduce/kernels/launch.cuh"
#include "reduce/kernels/operators/logsumexp.cuh"

void xgemm::reduce::launch_logsumexp(const Plan& plan, const void* in, void* out, const Workspace& workspace,
                                     cudaStream_t stream) {
  launch_floating<LogSumExp>(plan, in, out, workspace, stream);
}
