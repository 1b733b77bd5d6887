// Launching a product planned for mma/kernel.cuh. Free of torch.
#pragma once
#include <cuda_runtime.h>

#include "matmul/mma/plan.h"

namespace xgemm::matmul {

/// Enqueues the product on `stream`; one launch, no workspace. One a file mma_<type>.cu.
void launch_mma_half(const Problem& p, const MmaPlan& plan, cudaStream_t stream);
void launch_mma_bf16(const Problem& p, const MmaPlan& plan, cudaStream_t stream);

}  // namespace xgemm::matmul
