// Products of fp16 parts by mma.sync.
#pragma once
#include "device/ptx/mma.cuh"

namespace xgemm::attention {

/// A product of two parts each, 16 by 16: three products, the small ones by themselves.
struct PartSums {
  float large[2][4] = {}, small[2][4] = {};
  __device__ __forceinline__ void add(const std::uint32_t (&a)[2][4], const std::uint32_t (&b)[2][4]) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      ptx::mma<half>(small[j], a[1], b[0][2 * j], b[0][2 * j + 1]);
      ptx::mma<half>(small[j], a[0], b[1][2 * j], b[1][2 * j + 1]);
      ptx::mma<half>(large[j], a[0], b[0][2 * j], b[0][2 * j + 1]);
    }
  }
  __device__ __forceinline__ float operator[](int i) const { return large[i / 4][i % 4] + small[i / 4][i % 4]; }
};

/// sums += a B, 16 by 16, k 16 kSteps: the small products first. load(b, step): B's parts.
template <int kSteps, class Load>
__device__ __forceinline__ void multiply_parts(float (&sums)[2][4], const std::uint32_t (&a)[kSteps][2][4], const Load& load) {
  std::uint32_t b[kSteps][2][4];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    load(b[step], step);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      ptx::mma<half>(sums[j], a[step][1], b[step][0][2 * j], b[step][0][2 * j + 1]);
      ptx::mma<half>(sums[j], a[step][0], b[step][1][2 * j], b[step][1][2 * j + 1]);
    }
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int j = 0; j < 2; ++j) ptx::mma<half>(sums[j], a[step][0], b[step][0][2 * j], b[step][0][2 * j + 1]);
}

}  // namespace xgemm::attention
