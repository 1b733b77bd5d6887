// Launching a product planned for fp64_mma/kernel.cuh. Free of torch.
#pragma once
#include <cuda_runtime.h>

#include "matmul/fp64_mma/plan.h"

namespace xgemm::matmul {

/// Enqueues the product on `stream`; `workspace` holds plan.workspace_bytes. Errors show in cudaGetLastError.
void launch_fp64(const Problem& p, const Fp64Plan& plan, void* workspace, cudaStream_t stream);

}  // namespace xgemm::matmul
