// Launches a planned reduction on a stream.
#pragma once
#include <cuda_runtime.h>

#include "reduce/plan.h"

namespace xgemm::reduce {

/// Of CTAs that share an output: plan.counter_bytes of zeros, zero again afterwards, and memory for partial results.
struct Workspace {
  void *counters, *partials;
};

// A .cu each, so that they compile in parallel.
using Launch = void(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream);
extern Launch *const launch_sum, *const launch_maximum, *const launch_index, *const launch_logsumexp, *const launch_cross_entropy,
                                                                                                          *const launch_mean_loss;
void launch_copy(const CopyPlan& plan, const void* in, void* out, cudaStream_t stream);

/// Enqueues one kernel.
inline void launch(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
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

/// Rounds as Tensor.to does. out: contiguous, in the logical order of `source`, which may be empty. `dtype`: floating or int64.
void launch_cast(const char* op, const Source& source, void* out, DType dtype, cudaStream_t stream);

}  // namespace xgemm::reduce
