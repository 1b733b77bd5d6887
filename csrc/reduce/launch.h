// Launches a planned reduction on a stream.
#pragma once
#include <cuda_runtime.h>

#include "reduce/plan.h"

namespace xgemm::reduce {

/// `workspace` holds plan.workspace_bytes. Enqueues only: one kernel, preceded by a memset of the counters when blocks share an output.
void launch(const Plan& plan, const void* in, void* out, void* workspace, cudaStream_t stream);

// One a file, so that they compile side by side.
void launch_sum(const Plan& plan, const void* in, void* out, void* workspace, cudaStream_t stream);
void launch_maximum(const Plan& plan, const void* in, void* out, void* workspace, cudaStream_t stream);
void launch_index(const Plan& plan, const void* in, void* out, void* workspace, cudaStream_t stream);
void launch_logsumexp(const Plan& plan, const void* in, void* out, void* workspace, cudaStream_t stream);

}  // namespace xgemm::reduce
