#include "hopper.h"
namespace xgemm::dev {
namespace {
template <bool A, bool B> struct V0 { static constexpr WgmmaConfig kValue{.tile_n = 256, .tile_k = 64, .stages = 4, .k_major_a = A, .k_major_b = B, .group = 16}; };
template <bool A, bool B> struct V1 { static constexpr WgmmaConfig kValue{.tile_n = 256, .tile_k = 64, .stages = 4, .k_major_a = A, .k_major_b = B, .group = 16, .cluster = 2}; };
template <bool A, bool B> struct V2 { static constexpr WgmmaConfig kValue{.tile_n = 128, .tile_k = 64, .stages = 6, .k_major_a = A, .k_major_b = B, .group = 12}; };
template <bool A, bool B> struct V3 { static constexpr WgmmaConfig kValue{.tile_n = 192, .tile_k = 64, .stages = 5, .k_major_a = A, .k_major_b = B, .group = 16}; };
template <bool A, bool B> struct V4 { static constexpr WgmmaConfig kValue{.tile_n = 128, .tile_k = 64, .stages = 6, .k_major_a = A, .k_major_b = B, .group = 12, .cluster = 2}; };
}  // namespace
#define RUN(V, A, B) if (ka == A && kb == B) return launch_wgmma<bf16, V<A, B>>(p, e, sms, s)
int gemm_bf16(int variant, bool ka, bool kb, const WgmmaProblem& p, const Plain<bf16>& e, int sms, cudaStream_t s) {
  switch (variant) {
    case 0: RUN(V0, true, false); RUN(V0, true, true); RUN(V0, false, false); RUN(V0, false, true); break;
    case 1: RUN(V1, true, false); RUN(V1, true, true); break;
    case 2: RUN(V2, true, false); RUN(V2, true, true); break;
    case 3: RUN(V3, true, false); RUN(V3, true, true); break;
    case 4: RUN(V4, true, false); RUN(V4, true, true); break;
  }
  return -1;
}
}  // namespace xgemm::dev
