// Launching a product planned for sliced/kernel.cuh or gemv/sweep.cuh. Free of torch.
#pragma once
#include <cuda_runtime.h>

#include "matmul/gemv/plan.h"

namespace xgemm::matmul {

/// Enqueues the product on `stream`; one launch, no workspace.
void launch_small(const Problem& p, const SmallPlan& plan, cudaStream_t stream);
void launch_sweep(const Problem& p, const SmallPlan& plan, cudaStream_t stream);

}  // namespace xgemm::matmul
