// Launching a product planned for bf16x3/kernel.cuh. Free of torch.
#pragma once
#include <cuda_runtime.h>

#include "matmul/bf16x3/plan.h"
#include "matmul/simt/launch.h"

namespace xgemm::matmul {

/// Enqueues the product, with A and B swapped where the plan is, on `stream`. `counters`: plan.counter_bytes of zeros, zeros
/// again afterwards; `partials`: plan.partial_bytes. False: the driver refused a tensor map, nothing was launched.
bool launch_bf16x3(const Problem& p, const Bf16x3Plan& plan, void* counters, float* partials, cudaStream_t stream);

/// The same for the elements that fp16 parts do not carry; a plan of plan_bf16x3_fallback, `list`: its bf16x3_list_words.
/// `prepared`: what was counted of a prepared B, or null.
bool launch_bf16x3_fallback(const Problem& p, const Bf16x3Plan& plan, const FailedPairs& only, const FailedProduct& failed,
                            const FailedLines* prepared, unsigned* list, cudaStream_t stream);

}  // namespace xgemm::matmul
