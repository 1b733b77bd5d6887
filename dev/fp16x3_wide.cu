#include "hopper.h"
namespace xgemm::dev {
namespace {
template <bool A, bool B> struct V3 { static constexpr WgmmaConfig kValue{.tile_n = 192, .tile_k = 32, .stages = 5, .k_major_a = A, .k_major_b = B, .group = 16, .parts = 2, .promote = 1}; };
template <bool A, bool B> struct V4 { static constexpr WgmmaConfig kValue{.tile_n = 192, .tile_k = 32, .stages = 5, .k_major_a = A, .k_major_b = B, .group = 16, .parts = 2, .promote = 2}; };
template <bool A, bool B> struct V5 { static constexpr WgmmaConfig kValue{.tile_n = 192, .tile_k = 64, .stages = 2, .k_major_a = A, .k_major_b = B, .group = 16, .parts = 2, .promote = 1}; };
template <bool A, bool B> struct V6 { static constexpr WgmmaConfig kValue{.tile_n = 192, .tile_k = 32, .stages = 5, .k_major_a = A, .k_major_b = B, .group = 16, .cluster = 2, .parts = 2, .promote = 2}; };
}  // namespace
#define RUN(V, A, B) if (ka == A && kb == B) return launch_wgmma<half, V<A, B>>(p, e, sms, s)
int gemm_fp16x3_wide(int variant, bool ka, bool kb, const WgmmaProblem& p, const Scaled& e, int sms, cudaStream_t s) {
  switch (variant) {
    case 3: RUN(V3, true, false); RUN(V3, true, true); RUN(V3, false, false); RUN(V3, false, true); break;
    case 4: RUN(V4, true, false); RUN(V4, true, true); break;
    case 5: RUN(V5, true, false); RUN(V5, true, true); break;
    case 6: RUN(V6, true, false); RUN(V6, true, true); break;
  }
  return -1;
}
}  // namespace xgemm::dev
