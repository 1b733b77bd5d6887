// A warp's 16 x 8 x 16 product in fp64, by the mma.sync that the architecture has: one m16n8k16 from sm_90 on, else eight m8n8k4.
#pragma once
#include "device/ptx/mma_f64.cuh"

namespace xgemm {

/// d += a b, by the warp's lanes l. a[h][i]: row l / 4 + 8 h, k = 4 i + l % 4; b[i]: column l / 4, the same k. d[2 h + c]: row
/// l / 4 + 8 h, column 2 (l % 4) + c. Any order of k works if A and B use the same one.
__device__ __forceinline__ void mma_f64(double (&d)[4], const double (&a)[2][4], const double (&b)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  ptx::mma_m16n8k16(d, a, b);
#else
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) ptx::mma_m8n8k4(reinterpret_cast<double(&)[2]>(d[2 * h]), a[h][i], b[i]);
#endif
}

}  // namespace xgemm
