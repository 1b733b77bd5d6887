#include "matmul/wgmma/launch.cuh"

namespace xgemm::matmul {
namespace {

template <class T>
bool launch_gated_half_type(const WgmmaLaunch& launch) {
  switch (launch.plan.tile) {
    case WgmmaTile::t128x256: return launch_wgmma<T, WgmmaTile::t128x256, 0, true, true, true>(launch);
    case WgmmaTile::t64x64: return launch_wgmma<T, WgmmaTile::t64x64, 0, true, true, true>(launch);
    default: return launch_wgmma<T, WgmmaTile::t128x128, 0, true, true, true>(launch);
  }
}

}  // namespace

bool launch_wgmma_gated(const WgmmaLaunch& launch) {
  switch (launch.plan.parts) {
    case 0:
      return launch.problem.dtype == DType::f16 ? launch_gated_half_type<half>(launch) : launch_gated_half_type<bf16>(launch);
    case 1: return launch_wgmma<half, WgmmaTile::t128x128, 1, true, true, true>(launch);
    default: return launch_wgmma<half, WgmmaTile::t128x128, 2, true, true, true>(launch);
  }
}

}  // namespace xgemm::matmul
