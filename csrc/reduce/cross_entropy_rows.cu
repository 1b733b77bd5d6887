#include "reduce/kernels/launch_rows.cuh"
#include "reduce/kernels/operators/cross_entropy.cuh"

namespace xgemm::reduce {

void launch_cross_entropy_rows(const RowPlan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  launch_floating_rows<CrossEntropy>(plan, in, out, workspace, stream);
}

}  // namespace xgemm::reduce
