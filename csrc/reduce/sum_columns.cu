#include "reduce/kernels/launch_columns.cuh"
#include "reduce/kernels/operators/sum.cuh"

namespace xgemm::reduce {

void launch_sum_columns(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  launch_floating_columns<Sum>(plan, in, out, workspace, stream);
}

}  // namespace xgemm::reduce
