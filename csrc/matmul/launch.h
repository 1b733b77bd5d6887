// Launches of families that need only one function each, defined in the family's folder; other families have a launch.h of
// their own. Free of torch.
#pragma once
#include <cuda_runtime.h>

#include "matmul/candidate.h"

namespace xgemm::matmul {

// Each enqueues the product on `stream`. `workspace`: plan.workspace_bytes; `counters`: plan.counter_bytes of zeros, zeros again
// afterwards; `partials`: plan.partial_bytes. Errors show in cudaGetLastError.
void launch_fp64(const Problem& p, const Fp64Plan& plan, void* workspace, cudaStream_t stream);
void launch_mma_half(const Problem& p, const MmaPlan& plan, cudaStream_t stream);
void launch_mma_bf16(const Problem& p, const MmaPlan& plan, cudaStream_t stream);
void launch_sliced(const Problem& p, const SlicedPlan& plan, cudaStream_t stream);
/// False: the driver refused a tensor map, nothing was launched.
bool launch_tf32(const Problem& p, const Tf32Plan& plan, unsigned char* workspace, unsigned* counters, float* partials,
                 cudaStream_t stream);
bool launch_presplit(const Problem& p, const PresplitPlan& plan, unsigned char* workspace, unsigned* counters, float* partials,
                     cudaStream_t stream);

}  // namespace xgemm::matmul
