// Launching a product planned for bf16x3/kernel.cuh. Free of torch.
#pragma once
#include <cuda_runtime.h>

#include "matmul/bf16x3/plan.h"
#include "matmul/simt/launch.h"

namespace xgemm::matmul {

/// Enqueues the product on `stream`, with A and B swapped if the plan has swap_ab. `counters`: plan.counter_bytes of zeros,
/// zeros again afterwards; `partials`: plan.partial_bytes. False: the driver rejected a tensor map, nothing was launched.
bool launch_bf16x3(const Problem& p, const Bf16x3Plan& plan, void* counters, float* partials, cudaStream_t stream);

/// The same for the elements that fp16 parts cannot represent, by a plan of plan_bf16x3_fallback. `list`: its
/// bf16x3_list_words. `prepared`: the counts of a prepared B, or null.
bool launch_bf16x3_fallback(const Problem& p, const Bf16x3Plan& plan, const FailedPairs& only, const FailedProduct& failed,
                            const FailedLines* prepared, unsigned* list, cudaStream_t stream);

}  // namespace xgemm::matmul
