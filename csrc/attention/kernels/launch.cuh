// Launches one instantiation of kernels/tile.cuh.
#pragma once
#include "attention/kernels/tile.cuh"

namespace xgemm::attention {

template <int kIndex>
void launch_tile(const Plan& plan, const Arguments& arguments, cudaStream_t stream) {
  constexpr Tile kTile = kTiles[kIndex];
  constexpr auto kernel = attention_tile<kIndex>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kTile.shared_bytes());
  kernel<<<static_cast<unsigned>(plan.blocks), kThreads, kTile.shared_bytes(), stream>>>(arguments);
}

}  // namespace xgemm::attention
