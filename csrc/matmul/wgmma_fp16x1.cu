#include "matmul/kernels/wgmma_launch.cuh"

namespace xgemm::matmul {

bool launch_wgmma_fp16x1(const WgmmaLaunch& launch) {
  if (launch.plan.tile_n == kLargeTile) return launch_layout<half, float, kLargeTile, 1, true>(launch);
  if (launch.plan.tile_n == kMiddleTile) return launch_layout<half, float, kMiddleTile, 1, true>(launch);
  return launch_layout<half, float, kSmallTile, 1, true>(launch);
}

}  // namespace xgemm::matmul
