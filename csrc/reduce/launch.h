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

// A .cu each, so that they compile in parallel. Columns: all kernels but those for rows and copies.
void launch_sum_rows(const RowPlan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream);
void launch_sum_columns(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream);
void launch_maximum_rows(const RowPlan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream);
void launch_maximum_columns(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream);
void launch_index_rows(const RowPlan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream);
void launch_index_columns(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream);
void launch_logsumexp_rows(const RowPlan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream);
void launch_logsumexp_columns(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream);
void launch_cross_entropy_rows(const RowPlan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream);
void launch_cross_entropy_columns(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream);
void launch_mean_loss(const RowPlan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream);
void launch_copy(const CopyPlan& plan, const void* in, void* out, cudaStream_t stream);

}  // namespace xgemm::reduce
