#include "reduce/launch.h"

namespace xgemm::reduce {

void launch(const Plan& plan, const void* in, void* out, void* workspace, cudaStream_t stream) {
  if (plan.counter_bytes > 0) cudaMemsetAsync(workspace, 0, plan.counter_bytes, stream);
  launch(plan, in, out, Workspace{workspace, static_cast<char*>(workspace) + plan.counter_bytes}, stream);
}

void launch(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  if (const auto* copy = std::get_if<CopyPlan>(&plan.kernel)) return launch_copy(*copy, in, out, stream);
  switch (state_of(reduction_of(plan).kind)) {
    case State::sum: return launch_sum(plan, in, out, workspace, stream);
    case State::maximum: return launch_maximum(plan, in, out, workspace, stream);
    case State::index: return launch_index(plan, in, out, workspace, stream);
    case State::logsumexp: return launch_logsumexp(plan, in, out, workspace, stream);
    case State::cross_entropy: return launch_cross_entropy(plan, in, out, workspace, stream);
    case State::mean_loss: return launch_mean_loss(plan, in, out, workspace, stream);
  }
}

}  // namespace xgemm::reduce
