#include "matmul/wgmma/launch.cuh"

bool xgemm::matmul::launch_wgmma_bf16(const WgmmaLaunch& launch) { return launch_half_type<bf16>(launch); }
