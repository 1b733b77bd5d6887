// An fp32 sum and what its additions have rounded off: as exact as a sum of twice the digits, rounded once.
#pragma once
#include "device/warp.cuh"
#include "matmul/epilogue/apply.cuh"

namespace xgemm::matmul {

struct alignas(8) Compensated {
  float sum, off;

  /// Two numbers' sum, and what it rounded off exactly (Knuth).
  static __device__ __forceinline__ Compensated of(float a, float b) {
    const float sum = plus(a, b), of_b = plus(sum, -a);
    return {sum, plus(plus(a, -plus(sum, -of_b)), plus(b, -of_b))};
  }
  __device__ __forceinline__ void add(const Compensated& x) {
    const Compensated both = of(sum, x.sum);
    off = plus(plus(off, x.off), both.off), sum = both.sum;
  }
  /// Where the sum overflowed, nothing is known of what it rounded off.
  __device__ __forceinline__ float value() const { return fabsf(off) < INFINITY ? plus(sum, off) : sum; }
};

/// Adds a product to `sum`; what that rounded off.
__device__ __forceinline__ float add_product(float& sum, float a, float b) {
  const float product = times(a, b);
  const Compensated both = Compensated::of(sum, product);
  sum = both.sum;
  return plus(both.off, fmaf(a, b, -product));
}

/// The sum of all lanes', in every lane.
__device__ __forceinline__ Compensated warp_sum(Compensated x) {
#pragma unroll
  for (int step = kWarpSize / 2; step > 0; step /= 2)
    x.add({__shfl_xor_sync(kFullWarp, x.sum, step), __shfl_xor_sync(kFullWarp, x.off, step)});
  return x;
}

}  // namespace xgemm::matmul
