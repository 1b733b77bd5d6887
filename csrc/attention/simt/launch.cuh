// Launches one instantiation of simt/tile.cuh.
#pragma once
#include "attention/simt/tile.cuh"
#include "device/launch.h"

namespace xgemm::attention {

template <int kIndex>
void launch_tile(const SimtPlan& plan, const SimtArguments& arguments, cudaStream_t stream) {
  constexpr SimtTile kTile = kSimtTiles[kIndex];
  constexpr auto kernel = attention_tile<kIndex>;
  if constexpr (kTile.shared_bytes() > 48 * 1024) allow_shared<kernel, kTile.shared_bytes()>();
  kernel<<<static_cast<unsigned>(plan.blocks), kThreads, kTile.shared_bytes(), stream>>>(arguments);
}

}  // namespace xgemm::attention
