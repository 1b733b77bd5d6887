// Launches a planned softmax on a stream.
#pragma once
#include <cuda_runtime.h>

#include "softmax/masked.h"
#include "softmax/plan.h"

namespace xgemm::softmax {

/// `out` is contiguous; `workspace` holds plan.workspace_bytes. Enqueues one kernel, or two if rows do not stay on chip.
void launch(const Plan& plan, const void* in, void* out, void* workspace, cudaStream_t stream);

/// One kernel.
void launch_masked(const Masked& plan, const void* in, const void* mask, void* out, cudaStream_t stream);

// One per file, so that they compile in parallel. `pairs`: the statistics of a two-pass plan.
void launch_rows(const Plan& plan, const void* in, void* out, cudaStream_t stream);
void launch_short_rows(const Plan& plan, const void* in, void* out, cudaStream_t stream);
void launch_shared(const Plan& plan, const void* in, void* out, cudaStream_t stream);
void launch_odd_rows(const Plan& plan, const void* in, void* out, cudaStream_t stream);
void launch_elements(const Plan& plan, const void* in, void* out, cudaStream_t stream);
void launch_columns(const Plan& plan, const void* in, void* out, cudaStream_t stream);
void launch_apply(const Plan& plan, const void* in, void* out, const void* pairs, cudaStream_t stream);

}  // namespace xgemm::softmax
