#include "matmul/kernels/wgmma_launch.cuh"

namespace xgemm::matmul {

bool launch_wgmma_bf16(const WgmmaLaunch& launch) {
  if (launch.plan.tile_n == kLargeTile) return launch_layout<bf16, bf16, kLargeTile, 1, false>(launch);
  if (launch.plan.tile_n == kMiddleTile) return launch_layout<bf16, bf16, kMiddleTile, 1, false>(launch);
  return launch_layout<bf16, bf16, kSmallTile, 1, false>(launch);
}

}  // namespace xgemm::matmul
