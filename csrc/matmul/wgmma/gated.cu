#include "matmul/wgmma/launch.cuh"

namespace xgemm::matmul {
namespace {

template <class T, WgmmaTile kTile, int kParts>
bool launch_gated(const WgmmaLaunch& launch) {
  return launch_wgmma<T, kTile, kParts, true, true, true>(launch);
}

template <class T>
bool launch_gated_half_type(const WgmmaLaunch& launch) {
  switch (launch.plan.tile) {
    case WgmmaTile::t128x256: return launch_gated<T, WgmmaTile::t128x256, 0>(launch);
    case WgmmaTile::t64x64: return launch_gated<T, WgmmaTile::t64x64, 0>(launch);
    default: return launch_gated<T, WgmmaTile::t128x128, 0>(launch);
  }
}

}  // namespace

bool launch_wgmma_gated(const WgmmaLaunch& launch) {
  switch (launch.plan.parts) {
    case 0:
      return launch.problem.dtype == DType::f16 ? launch_gated_half_type<half>(launch) : launch_gated_half_type<bf16>(launch);
    case 1: return launch_gated<half, WgmmaTile::t128x128, 1>(launch);
    default: return launch_gated<half, WgmmaTile::t128x128, 2>(launch);
  }
}

}  // namespace xgemm::matmul
