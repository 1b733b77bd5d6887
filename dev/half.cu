#include "hopper.h"
namespace xgemm::dev {
namespace {
template <bool A, bool B> struct V0 { static constexpr WgmmaConfig kValue{.tile_n = 256, .tile_k = 64, .stages = 4, .k_major_a = A, .k_major_b = B, .group = 16}; };
struct T0 { static constexpr WgmmaConfig kValue{.tile_n = 256, .tile_k = 32, .stages = 4, .k_major_a = true, .k_major_b = true, .group = 16}; };
}  // namespace
#define RUN(V, A, B) if (ka == A && kb == B) return launch_wgmma<half, V<A, B>>(p, e, sms, s)
int gemm_f16(int variant, bool ka, bool kb, const WgmmaProblem& p, const Plain<half>& e, int sms, cudaStream_t s) {
  if (variant == 0) { RUN(V0, true, false); RUN(V0, true, true); }
  return -1;
}
int gemm_tf32(int variant, bool ka, bool kb, const WgmmaProblem& p, const Plain<float>& e, int sms, cudaStream_t s) {
  if (variant == 0 && ka && kb) return launch_wgmma<ptx::tf32, T0>(p, e, sms, s);
  return -1;
}
}  // namespace xgemm::dev
