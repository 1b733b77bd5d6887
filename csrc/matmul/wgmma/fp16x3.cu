#include "matmul/wgmma/launch.cuh"

namespace xgemm::matmul {

bool launch_wgmma_fp16x3(const WgmmaLaunch& launch) {
  switch (launch.plan.tile) {
    case WgmmaTile::t128x128: return launch_layout<half, float, WgmmaTile::t128x128, 2, true>(launch);
    case WgmmaTile::t64x64: return launch_layout<half, float, WgmmaTile::t64x64, 2, true>(launch);
    default: return launch_layout<half, float, WgmmaTile::t128x64, 2, true>(launch);
  }
}

}  // namespace xgemm::matmul
