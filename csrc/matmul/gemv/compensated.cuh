// An fp32 sum with the accumulated rounding error of its additions: as exact as a sum in twice the precision, rounded once.
#pragma once
#include "device/warp.cuh"
#include "matmul/epilogue/apply.cuh"

namespace xgemm::matmul {

struct alignas(8) Compensated {
  float sum, off;

  /// The sum of two numbers and its exact rounding error (Knuth's 2Sum).
  static __device__ __forceinline__ Compensated of(float a, float b) {
    const float sum = plus(a, b), of_b = plus(sum, -a);
    return {sum, plus(plus(a, -plus(sum, -of_b)), plus(b, -of_b))};
  }
  __device__ __forceinline__ void add(const Compensated& x) {
    const Compensated both = of(sum, x.sum);
    off = plus(plus(off, x.off), both.off), sum = both.sum;
  }
  /// If the sum overflowed, its error is unknown.
  __device__ __forceinline__ float value() const { return fabsf(off) < INFINITY ? plus(sum, off) : sum; }
};

/// Adds a product to `sum`; returns the rounding error.
__device__ __forceinline__ float add_product(float& sum, float a, float b) {
  const float product = times(a, b);
  const Compensated both = Compensated::of(sum, product);
  sum = both.sum;
  return plus(both.off, fmaf(a, b, -product));
}

/// The sum over all lanes, or each `lanes` (a power of two) neighbouring ones, in every lane.
__device__ __forceinline__ Compensated warp_sum(Compensated x, int lanes = kWarpSize) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2)
    x.add({__shfl_xor_sync(kFullWarp, x.sum, step), __shfl_xor_sync(kFullWarp, x.off, step)});
  return x;
}

}  // namespace xgemm::matmul
