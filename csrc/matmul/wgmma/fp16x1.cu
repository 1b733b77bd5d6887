#include "matmul/wgmma/launch.cuh"

namespace xgemm::matmul {

bool launch_wgmma_fp16x1(const WgmmaLaunch& launch) {
  switch (launch.plan.tile) {
    case WgmmaTile::t128x256: return launch_layout<half, float, WgmmaTile::t128x256, 1, true>(launch);
    case WgmmaTile::t128x128: return launch_layout<half, float, WgmmaTile::t128x128, 1, true>(launch);
    default: return launch_layout<half, float, WgmmaTile::t128x64, 1, true>(launch);
  }
}

}  // namespace xgemm::matmul
