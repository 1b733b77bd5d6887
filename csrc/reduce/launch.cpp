#include "reduce/launch.h"

namespace xgemm::reduce {

void launch(const Plan& plan, const void* in, void* out, void* workspace, cudaStream_t stream) {
  if (plan.counter_bytes > 0) cudaMemsetAsync(workspace, 0, plan.counter_bytes, stream);
  launch(plan, in, out, Workspace{workspace, static_cast<char*>(workspace) + plan.counter_bytes}, stream);
}

void launch(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  if (const auto* copy = std::get_if<CopyPlan>(&plan.kernel)) return launch_copy(*copy, in, out, stream);
  const auto go = [&](auto* launch_rows, auto* launch_columns) {
    if (const auto* rows = std::get_if<RowPlan>(&plan.kernel)) return launch_rows(*rows, in, out, workspace, stream);
    launch_columns(plan, in, out, workspace, stream);
  };
  switch (state_of(reduction_of(plan).kind)) {
    case State::sum: return go(launch_sum_rows, launch_sum_columns);
    case State::maximum: return go(launch_maximum_rows, launch_maximum_columns);
    case State::index: return go(launch_index_rows, launch_index_columns);
    case State::logsumexp: return go(launch_logsumexp_rows, launch_logsumexp_columns);
    case State::cross_entropy: return go(launch_cross_entropy_rows, launch_cross_entropy_columns);
    case State::mean_loss: return launch_mean_loss(std::get<RowPlan>(plan.kernel), in, out, workspace, stream);
  }
}

}  // namespace xgemm::reduce
