// Runs a planned reduction where an op runs, with the memory that it needs.
#pragma once
#include "reduce/launch.h"
#include "torch/cuda.h"

namespace xgemm::reduce {

inline void run(const Plan& plan, const void* in, void* out, const CudaScope& scope, const TensorView& like) {
  const std::size_t partials = plan.workspace_bytes - plan.counter_bytes;
  std::optional<Tensor> scratch;  // given back to torch's allocator on return, and used again in the stream's order
  void* standing = nullptr;
  if (plan.workspace_bytes > 0 && plan.counter_bytes <= CudaScope::kStandingCounterBytes &&
      partials <= CudaScope::kStandingBytes - CudaScope::kStandingCounterBytes)
    standing = scope.standing_workspace();
  if (plan.workspace_bytes == 0) {
    launch(plan, in, out, Workspace{nullptr, nullptr}, scope.stream());
  } else if (standing != nullptr) {
    launch(plan, in, out, Workspace{standing, static_cast<char*>(standing) + CudaScope::kStandingCounterBytes}, scope.stream());
  } else {
    scratch = workspace(plan.workspace_bytes, like);
    launch(plan, in, out, scratch->data_ptr(), scope.stream());
  }
  scope.check_launch();
}

}  // namespace xgemm::reduce
