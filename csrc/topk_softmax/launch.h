// Launches a planned topk_softmax on a stream.
#pragma once
#include <cuda_runtime.h>

#include "topk_softmax/plan.h"

namespace xgemm::topk_softmax {

void launch_rounds(const Plan& plan, const void* in, void* values, std::int64_t* indices, cudaStream_t stream);
void launch_select(const Plan& plan, const void* in, void* values, std::int64_t* indices, cudaStream_t stream);

/// `values` and `indices` are contiguous. One kernel, no workspace.
inline void launch(const Plan& plan, const void* in, void* values, std::int64_t* indices, cudaStream_t stream) {
  return (plan.kernel == Kernel::rounds ? launch_rounds : launch_select)(plan, in, values, indices, stream);
}

}  // namespace xgemm::topk_softmax
