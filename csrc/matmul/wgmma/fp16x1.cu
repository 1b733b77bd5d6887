#include "matmul/wgmma/launch.cuh"

bool xgemm::matmul::launch_wgmma_fp16x1(const WgmmaLaunch& launch) {
  return launch.plan.tile == WgmmaTile::t128x256 ? launch_layout<half, WgmmaTile::t128x256, 1>(launch)
                                                 : launch_layout<half, WgmmaTile::t128x128, 1>(launch);
}
