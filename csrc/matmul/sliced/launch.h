// Launching a product planned for sliced/kernel.cuh. Free of torch.
#pragma once
#include <cuda_runtime.h>

#include "matmul/sliced/plan.h"

namespace xgemm::matmul {

/// Enqueues the product on `stream`; one launch, no workspace.
void launch_sliced(const Problem& p, const SlicedPlan& plan, cudaStream_t stream);

}  // namespace xgemm::matmul
