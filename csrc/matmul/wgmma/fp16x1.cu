#include "matmul/wgmma/launch.cuh"

namespace xgemm::matmul {

bool launch_wgmma_fp16x1(const WgmmaLaunch& launch) {
  switch (launch.plan.tile) {
    case TensorTile::large: return launch_layout<half, float, TensorTile::large, 1, true>(launch);
    case TensorTile::middle: return launch_layout<half, float, TensorTile::middle, 1, true>(launch);
    default: return launch_layout<half, float, TensorTile::small, 1, true>(launch);
  }
}

}  // namespace xgemm::matmul
