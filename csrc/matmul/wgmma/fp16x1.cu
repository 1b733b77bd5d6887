#include "matmul/wgmma/launch.cuh"

bool xgemm::matmul::launch_wgmma_fp16x1(const WgmmaLaunch& launch) {
  return launch.plan.tile == WgmmaTile::t128x256 ? launch_layout<half, float, WgmmaTile::t128x256, 1, true>(launch)
                                                 : launch_layout<half, float, WgmmaTile::t128x128, 1, true>(launch);
}
