// Runs a planned reduction where an op runs, with the memory that it needs.
#pragma once
#include "device/counters.h"
#include "reduce/launch.h"
#include "torch/cuda.h"

namespace xgemm::reduce {

inline void run(const Plan& plan, const void* in, void* out, const CudaScope& scope, const TensorView& like) {
  const std::size_t partials = plan.workspace_bytes - plan.counter_bytes;
  std::optional<Tensor> scratch;  // given back to torch's allocator on return, and used again in the stream's order
  Workspace shared{nullptr, nullptr};
  if (plan.workspace_bytes > 0) {
    const bool captured = scope.captured();
    if (captured) {
      shared.counters = counters_for_capture(like.device_index, plan.counter_bytes);
    } else if (plan.counter_bytes <= CudaScope::kStandingCounterBytes &&
               partials <= CudaScope::kStandingBytes - CudaScope::kStandingCounterBytes) {
      prepare_captures(like.device_index);
      shared.counters = scope.standing_workspace();
      shared.partials = static_cast<char*>(shared.counters) + CudaScope::kStandingCounterBytes;
    }
    if (shared.partials == nullptr) {
      scratch = workspace(shared.counters != nullptr ? partials : plan.workspace_bytes, like);
      shared.partials = scratch->data_ptr();
    }
  }
  if (plan.workspace_bytes > 0 && shared.counters == nullptr)
    launch(plan, in, out, shared.partials, scope.stream());
  else
    launch(plan, in, out, shared, scope.stream());
  scope.check_launch();
}

}  // namespace xgemm::reduce
