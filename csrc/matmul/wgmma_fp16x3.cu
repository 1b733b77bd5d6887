#include "matmul/kernels/wgmma_launch.cuh"

namespace xgemm::matmul {

bool launch_wgmma_fp16x3(const WgmmaLaunch& launch) {
  if (launch.plan.tile == TensorTile::middle) return launch_layout<half, float, TensorTile::middle, 2, true>(launch);
  return launch_layout<half, float, TensorTile::small, 2, true>(launch);
}

}  // namespace xgemm::matmul
