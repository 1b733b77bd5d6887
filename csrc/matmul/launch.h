// Launching a planned product. Free of torch.
#pragma once
#include <cuda_runtime.h>

#include "device/numeric.cuh"
#include "matmul/plan.h"

namespace xgemm::matmul {

/// Enqueues the product on `stream`; `workspace` holds plan.workspace_bytes. Errors show in cudaGetLastError. One instantiation an
/// element type (simt_<type>.cu).
template <class T>
void launch_simt(const Problem& p, const Plan& plan, void* workspace, cudaStream_t stream);

}  // namespace xgemm::matmul
