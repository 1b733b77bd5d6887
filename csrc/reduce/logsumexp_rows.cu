#include "reduce/kernels/launch_rows.cuh"
#include "reduce/kernels/operators/logsumexp.cuh"

namespace xgemm::reduce {

void launch_logsumexp_rows(const RowPlan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  launch_floating_rows<LogSumExp>(plan, in, out, workspace, stream);
}

}  // namespace xgemm::reduce
