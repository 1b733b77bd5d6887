#include "matmul/wgmma/launch.cuh"

namespace xgemm::matmul {

bool launch_wgmma_fp16x3(const WgmmaLaunch& launch) {
  switch (launch.plan.tile) {
    case TensorTile::middle: return launch_layout<half, float, TensorTile::middle, 2, true>(launch);
    case TensorTile::few_rows_64: return launch_layout<half, float, TensorTile::few_rows_64, 2, true>(launch);
    default: return launch_layout<half, float, TensorTile::small, 2, true>(launch);
  }
}

}  // namespace xgemm::matmul
