#include "reduce/kernels/launch_rows.cuh"
#include "reduce/kernels/operators/sum.cuh"

namespace xgemm::reduce {

void launch_sum_rows(const RowPlan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  launch_floating_rows<Sum>(plan, in, out, workspace, stream);
}

}  // namespace xgemm::reduce
