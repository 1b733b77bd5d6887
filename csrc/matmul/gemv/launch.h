// Launching a product of at most four rows or columns. Free of torch.
#pragma once
#include <cuda_runtime.h>

#include "matmul/gemv/plan.h"

namespace xgemm::matmul {

/// Enqueues the product on `stream`; `workspace` holds plan.workspace_bytes. One per kernel: gemv of every element type
/// (simt/<type>.cu), dot and sweep (fp32).
template <class T>
void launch_gemv(const Problem& p, const GemvPlan& plan, void* workspace, cudaStream_t stream);
void launch_dot(const Problem& p, cudaStream_t stream);
void launch_sweep(const Problem& p, const GemvPlan& plan, cudaStream_t stream);

}  // namespace xgemm::matmul
