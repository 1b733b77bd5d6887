#include "matmul/wgmma/launch.cuh"

bool xgemm::matmul::launch_wgmma_half(const WgmmaLaunch& launch) { return launch_half_type<half>(launch); }
