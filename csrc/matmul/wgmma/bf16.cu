#include "matmul/wgmma/launch.cuh"

namespace xgemm::matmul {

bool launch_wgmma_bf16(const WgmmaLaunch& launch) { return launch_half_type<bf16>(launch); }

}  // namespace xgemm::matmul
