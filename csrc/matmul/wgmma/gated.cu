#include "matmul/wgmma/launch.cuh"

namespace xgemm::matmul {
namespace {

template <class Element, class Out, WgmmaTile kTile, int kParts, bool kScaled>
bool launch_gated(const WgmmaLaunch& launch) {
  return launch_wgmma<Element, Out, WgmmaInstance<kTile, kParts, kScaled, true, true, true>>(launch);
}

template <class T>
bool launch_gated_half_type(const WgmmaLaunch& launch) {
  switch (launch.plan.tile) {
    case WgmmaTile::t128x256: return launch_gated<T, T, WgmmaTile::t128x256, 1, false>(launch);
    case WgmmaTile::t64x64: return launch_gated<T, T, WgmmaTile::t64x64, 1, false>(launch);
    default: return launch_gated<T, T, WgmmaTile::t128x128, 1, false>(launch);
  }
}

}  // namespace

bool launch_wgmma_gated(const WgmmaLaunch& launch) {
  switch (launch.plan.parts) {
    case 0:
      return launch.problem.dtype == DType::f16 ? launch_gated_half_type<half>(launch) : launch_gated_half_type<bf16>(launch);
    case 1: return launch_gated<half, float, WgmmaTile::t128x128, 1, true>(launch);
    default: return launch_gated<half, float, WgmmaTile::t128x128, 2, true>(launch);
  }
}

}  // namespace xgemm::matmul
