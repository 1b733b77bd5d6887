// Launches a planned softmax on a stream.
#pragma once
#include <cuda_runtime.h>

#include "softmax/plan.h"

namespace xgemm::softmax {

void launch_masked(const Masked& plan, const void* in, const void* mask, void* out, cudaStream_t stream);

// One per file, so that they compile in parallel.
using Launch = void(const Plan& plan, const void* in, void* out, cudaStream_t stream);
Launch launch_rows, launch_short_rows, launch_shared, launch_odd_rows, launch_elements, launch_columns;
void launch_apply(const Plan& plan, const void* in, void* out, const void* pairs, cudaStream_t stream);

/// `out` is contiguous; `pairs` holds the results of plan.statistics, if there are any. Enqueues one kernel.
inline void launch(const Plan& plan, const void* in, void* out, const void* pairs, cudaStream_t stream) {
  switch (plan.kernel) {
    case Kernel::odd_rows: return launch_odd_rows(plan, in, out, stream);
    case Kernel::elements: return launch_elements(plan, in, out, stream);
    case Kernel::rows: return launch_rows(plan, in, out, stream);
    case Kernel::shared: return launch_shared(plan, in, out, stream);
    case Kernel::columns: return launch_columns(plan, in, out, stream);
    case Kernel::two_pass: return launch_apply(plan, in, out, pairs, stream);
  }
}

}  // namespace xgemm::softmax
