// Launching a product planned for kernels/direct_fp32.cuh. Free of torch.
#pragma once
#include <cuda_runtime.h>

#include "matmul/direct_plan.h"

namespace xgemm::matmul {

/// Enqueues the product, mirrored where the plan is, on `stream`. `counters`: plan.counter_bytes() of zeros, zeros again
/// afterwards; `partials`: plan.partial_bytes. False: the driver refused a tensor map, nothing was launched.
bool launch_direct(const Problem& p, const DirectPlan& plan, void* counters, float* partials, cudaStream_t stream);

}  // namespace xgemm::matmul
