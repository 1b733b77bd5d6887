// Launching a product planned for the tensor cores. Free of torch.
#pragma once
#include <cuda_runtime.h>

#include "matmul/simt/launch.h"
#include "matmul/wgmma/plan.h"

namespace xgemm::matmul {

/// What the instantiations of wgmma/kernel.cuh get: `workspace` holds plan.workspace_bytes, copies and splits are done.
struct WgmmaLaunch {
  const Problem& problem;
  const WgmmaPlan& plan;
  unsigned char* workspace;
  void* counters;   ///< plan.counter_bytes of zeros, zeros again afterwards
  float* partials;  ///< plan.partial_bytes
  int sm_count;
  cudaStream_t stream;
  FailedProduct failed = {};  ///< fp32
};

// One a file wgmma_<operands>.cu. False: the driver refused a tensor map.
bool launch_wgmma_half(const WgmmaLaunch& launch);
bool launch_wgmma_bf16(const WgmmaLaunch& launch);
bool launch_wgmma_fp16x1(const WgmmaLaunch& launch);
bool launch_wgmma_fp16x3(const WgmmaLaunch& launch);
bool launch_wgmma_gated(const WgmmaLaunch& launch);
/// The same for a plan whose B is read as it lies (few_rows.cu).
bool launch_few_rows(const WgmmaLaunch& launch);

/// Enqueues the split of b, a weight, to `prepared` of prepared_layout's size.
void launch_prepare(const Problem& p, int parts, void* prepared, cudaStream_t stream);

/// Enqueues the whole product on `stream`: copies or splits operands, multiplies, and for fp32 redoes what the split cannot
/// carry. False: the driver refused a tensor map, and nothing that writes `out` was launched. Errors show in cudaGetLastError.
bool launch_wgmma_product(const Problem& p, const WgmmaPlan& plan, void* workspace, void* counters, float* partials, int sm_count,
                          cudaStream_t stream);

}  // namespace xgemm::matmul
