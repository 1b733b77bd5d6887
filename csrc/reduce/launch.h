// Launches a planned reduction on a stream.
#pragma once
#include <cuda_runtime.h>

#include "reduce/plan.h"

namespace xgemm::reduce {

/// Memory through which CTAs that share an output combine it: plan.counter_bytes of zeros, zero again afterwards, and partial
/// results.
struct Workspace {
  void *counters, *partials;
};

/// Enqueues one kernel.
void launch(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream);

/// The same with uninitialised memory of plan.workspace_bytes: a memset of the counters, if there are any, runs first.
void launch(const Plan& plan, const void* in, void* out, void* workspace, cudaStream_t stream);

// A .cu each, so that they compile in parallel.
void launch_sum(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream);
void launch_maximum(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream);
void launch_index(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream);
void launch_logsumexp(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream);
void launch_cross_entropy(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream);
void launch_mean_loss(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream);
void launch_copy(const CopyPlan& plan, const void* in, void* out, cudaStream_t stream);

/// Rounds as torch's Tensor.to does. out: contiguous, as many elements as `source`, in its logical order. `dtype`: floating or
/// int64. A source of no elements launches nothing.
void launch_cast(const char* op, const Source& source, void* out, DType dtype, cudaStream_t stream);

}  // namespace xgemm::reduce
