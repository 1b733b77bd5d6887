// Launching a product planned for the tensor cores. Free of torch.
#pragma once
#include <cuda_runtime.h>

#include "matmul/launch.h"
#include "matmul/wgmma/plan.h"

namespace xgemm::matmul {

/// Arguments of the functions below. `workspace` has plan.workspace_bytes and holds the packed or split operands.
struct WgmmaLaunch {
  const Problem& problem;
  const WgmmaPlan& plan;
  unsigned char* workspace;
  void* counters;   ///< plan.counter_bytes; zeros before and after
  float* partials;  ///< plan.partial_bytes
  int sm_count;
  cudaStream_t stream;
  FailedProduct failed = {};  ///< fp32
};

// One per file wgmma/<operands>.cu. False: the driver rejected a tensor map.
bool launch_wgmma_half(const WgmmaLaunch& launch);
bool launch_wgmma_bf16(const WgmmaLaunch& launch);
bool launch_wgmma_fp16x1(const WgmmaLaunch& launch);
bool launch_wgmma_fp16x3(const WgmmaLaunch& launch);
bool launch_wgmma_gated(const WgmmaLaunch& launch);
/// The same for a plan that reads B in place (few_rows.cu).
bool launch_few_rows(const WgmmaLaunch& launch);

/// Enqueues the whole product on `stream`: packs or splits operands, multiplies, and for fp32 recomputes the elements that the
/// split cannot represent. False: the driver rejected a tensor map, and nothing that writes `out` was launched. Errors show in
/// cudaGetLastError.
bool launch_wgmma_product(const Problem& p, const WgmmaPlan& plan, void* workspace, void* counters, float* partials, int sm_count,
                          cudaStream_t stream);

}  // namespace xgemm::matmul
