// Launches of all families but simt and wgmma, which have a launch.h of their own; defined in the family's folder. Free of torch.
#pragma once
#include <cuda_runtime.h>

#include "matmul/bf16x3/plan.h"
#include "matmul/fp64_mma/plan.h"
#include "matmul/gemv/plan.h"
#include "matmul/mma/plan.h"
#include "matmul/simt/launch.h"
#include "matmul/sliced/plan.h"
#include "matmul/tf32/plan.h"

namespace xgemm::matmul {

// Each enqueues the product on `stream`. `workspace`: plan.workspace_bytes; `counters`: plan.counter_bytes of zeros, zeros again
// afterwards; `partials`: plan.partial_bytes. Errors show in cudaGetLastError.
template <class T>  // in simt/<type>.cu
void launch_gemv(const Problem& p, const GemvPlan& plan, void* workspace, cudaStream_t stream);
void launch_dot(const Problem& p, cudaStream_t stream);
void launch_sweep(const Problem& p, const GemvPlan& plan, cudaStream_t stream);
void launch_outputs(const Problem& p, const GemvPlan& plan, cudaStream_t stream);
void launch_fp64(const Problem& p, const Fp64Plan& plan, void* workspace, cudaStream_t stream);
template <class T>  // in mma/<type>.cu
void launch_mma(const Problem& p, const MmaPlan& plan, void* counters, float* partials, cudaStream_t stream);
void launch_sliced(const Problem& p, const SlicedPlan& plan, cudaStream_t stream);

/// Sums of splits, [split][batch][m][n], by simt/kernel.cuh's last launch: adds them in order and stores C.
template <class T>
void launch_sum_splits(const Problem& p, std::int64_t splits, float* sums, cudaStream_t stream);
void launch_large(const Problem& p, const LargePlan& plan, unsigned char* workspace, float* partials, cudaStream_t stream);

// False: the driver refused a tensor map, nothing was launched.
bool launch_tf32(const Problem& p, const Tf32Plan& plan, unsigned char* workspace, void* counters, float* partials,
                 cudaStream_t stream);
bool launch_bf16x3(const Problem& p, const Bf16x3Plan& plan, void* counters, float* partials, cudaStream_t stream);
/// The same for the elements that fp16 parts cannot represent, by a plan of plan_bf16x3_fallback. `list`: its
/// bf16x3_list_words. `prepared`: the counts of a prepared B, or null.
bool launch_bf16x3_fallback(const Problem& p, const Bf16x3Plan& plan, const FailedPairs& only, const FailedProduct& failed,
                            const FailedLines* prepared, unsigned* list, cudaStream_t stream);

}  // namespace xgemm::matmul
