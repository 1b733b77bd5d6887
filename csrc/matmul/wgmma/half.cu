#include "matmul/wgmma/launch.cuh"

namespace xgemm::matmul {

bool launch_wgmma_half(const WgmmaLaunch& launch) { return launch_half_type<half>(launch); }

}  // namespace xgemm::matmul
