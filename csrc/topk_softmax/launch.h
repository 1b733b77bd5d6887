// Launches a planned topk_softmax on a stream.
#pragma once
#include <cuda_runtime.h>

#include "topk_softmax/plan.h"

namespace xgemm::topk_softmax {

/// `values` and `indices` are contiguous. One kernel, no workspace.
void launch(const Plan& plan, const void* in, void* values, std::int64_t* indices, cudaStream_t stream);

}  // namespace xgemm::topk_softmax
