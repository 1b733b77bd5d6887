// Launching a planned product. Free of torch.
#pragma once
#include <cuda_runtime.h>

#include "device/numeric.cuh"
#include "matmul/fp16_split/failed.h"
#include "matmul/simt/plan.h"

namespace xgemm::matmul {

/// Enqueues the product on `stream`; `workspace` holds plan.workspace_bytes. Errors show in cudaGetLastError. One instantiation
/// per element type (simt/<type>.cu).
template <class T>
void launch_simt(const Problem& p, const SimtPlan& plan, void* workspace, cudaStream_t stream, const FailedPairs& only = {});

}  // namespace xgemm::matmul
