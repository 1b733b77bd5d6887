#include "matmul/kernels/wgmma_launch.cuh"

namespace xgemm::matmul {

bool launch_wgmma_half(const WgmmaLaunch& launch) {
  if (launch.plan.tile_n == kLargeTile) return launch_layout<half, half, kLargeTile, 1, false>(launch);
  if (launch.plan.tile_n == kMiddleTile) return launch_layout<half, half, kMiddleTile, 1, false>(launch);
  return launch_layout<half, half, kSmallTile, 1, false>(launch);
}

}  // namespace xgemm::matmul
