// O += P V by a warpgroup, P in registers.
#pragma once
#include "device/ptx/warpgroup.cuh"
#include "device/ptx/wgmma.cuh"

namespace xgemm::attention {

/// Issues it, and commits it. `values`: the descriptor of 16 kSteps keys' values, which lie as `Values`.
template <class Element, class Values, int kSums, int kSteps>
__device__ __forceinline__ void multiply_weights(float (&outputs)[kSums], std::uint32_t (&weights)[kSteps][4],
                                                 std::uint32_t values) {
  ptx::wgmma_pin(outputs);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) ptx::wgmma_pin(weights[step]);
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
    ptx::WgmmaRegisters<Element, false>::mma(outputs, weights[step], Values::descriptor(values, step * Values::kStepBytes), true);
  ptx::wgmma_commit();
}

}  // namespace xgemm::attention
