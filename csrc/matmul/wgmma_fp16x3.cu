#include "matmul/kernels/wgmma_launch.cuh"

namespace xgemm::matmul {

bool launch_wgmma_fp16x3(const WgmmaLaunch& launch) {
  if (launch.plan.tile_n == kMiddleTile) return launch_layout<half, float, kMiddleTile, 2, true>(launch);
  return launch_layout<half, float, kSmallTile, 2, true>(launch);
}

}  // namespace xgemm::matmul
