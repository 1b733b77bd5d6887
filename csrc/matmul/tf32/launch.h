// Launching a product planned for tf32/kernel.cuh. Free of torch.
#pragma once
#include <cuda_runtime.h>

#include "matmul/tf32/plan.h"

namespace xgemm::matmul {

/// Enqueues the product on `stream`. `workspace`: plan.workspace_bytes; `counters`: plan.counter_bytes of zeros, zeros again
/// afterwards; `partials`: plan.partial_bytes. False: the driver refused a tensor map, nothing was launched.
bool launch_tf32(const Problem& p, const Tf32Plan& plan, unsigned char* workspace, unsigned* counters, float* partials,
                 cudaStream_t stream);

}  // namespace xgemm::matmul
