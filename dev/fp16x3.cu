#include "hopper.h"
namespace xgemm::dev {
namespace {
template <bool A, bool B> struct V0 { static constexpr WgmmaConfig kValue{.tile_n = 128, .tile_k = 64, .stages = 3, .k_major_a = A, .k_major_b = B, .group = 12, .parts = 2, .promote = 1}; };
template <bool A, bool B> struct V1 { static constexpr WgmmaConfig kValue{.tile_n = 128, .tile_k = 64, .stages = 3, .k_major_a = A, .k_major_b = B, .group = 12, .parts = 2, .promote = 1, .overlap = true}; };
template <bool A, bool B> struct V2 { static constexpr WgmmaConfig kValue{.tile_n = 128, .tile_k = 64, .stages = 3, .k_major_a = A, .k_major_b = B, .group = 12, .cluster = 2, .parts = 2, .promote = 1, .overlap = true}; };
}  // namespace
#define RUN(V, A, B) if (ka == A && kb == B) return launch_wgmma<half, V<A, B>>(p, e, sms, s)
int gemm_fp16x3(int variant, bool ka, bool kb, const WgmmaProblem& p, const Scaled& e, int sms, cudaStream_t s) {
  switch (variant) {
    case 0: RUN(V0, true, false); RUN(V0, true, true); break;
    case 1: RUN(V1, true, false); RUN(V1, true, true); RUN(V1, false, false); RUN(V1, false, true); break;
    case 2: RUN(V2, true, false); RUN(V2, true, true); break;
    default: return gemm_fp16x3_wide(variant, ka, kb, p, e, sms, s);
  }
  return -1;
}
}  // namespace xgemm::dev
