#include "matmul/wgmma/launch.cuh"

bool xgemm::matmul::launch_wgmma_fp16x3(const WgmmaLaunch& launch) {
  return launch.plan.tile == WgmmaTile::t64x64 ? launch_layout<half, WgmmaTile::t64x64, 2>(launch)
                                               : launch_layout<half, WgmmaTile::t128x128, 2>(launch);
}
