// What the online variants share: the maximum so far and the sum of exp(x - maximum).
#pragma once
#include "lab/softmax/block_reduce.cuh"

namespace xgemm::lab::softmax {

/// What exponents are taken against: the maximum, and 0 while it is -Inf, where -Inf - -Inf would be NaN.
__device__ __forceinline__ float base_of(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

struct MaxSum {
  float m, d;

  /// The printed recurrence, of kCount elements at once: one rescaling of d for them all. No branch. +Inf and NaN make d NaN, as
  /// they make torch's sum.
  template <int kCount>
  __device__ __forceinline__ void add(const float (&x)[kCount]) {
    float highest = m;
#pragma unroll
    for (int k = 0; k < kCount; ++k) highest = fmaxf(highest, x[k]);
    const float base = base_of(highest);
    d *= expf(m - base);
#pragma unroll
    for (int k = 0; k < kCount; ++k) d += expf(x[k] - base);
    m = highest;
  }
};

__device__ __forceinline__ MaxSum combine(MaxSum a, MaxSum b) {
  const float m = fmaxf(a.m, b.m), base = base_of(m);
  // Separate roundings: a contracted FMA would make combine(a, b) and combine(b, a) differ in the last bit.
  return {m, __fadd_rn(__fmul_rn(a.d, expf(a.m - base)), __fmul_rn(b.d, expf(b.m - base)))};
}
__device__ __forceinline__ MaxSum shuffle_xor(MaxSum a, int mask) {
  return {__shfl_xor_sync(kFullWarp, a.m, mask), __shfl_xor_sync(kFullWarp, a.d, mask)};
}

/// The pass that reads a row once, kCount elements a thread and step, and the one that writes it.
template <int kCount>
__device__ __forceinline__ void online_row(const float* x, float* y, std::int64_t cols) {
  MaxSum row{-INFINITY, 0};
#pragma unroll 4 / kCount
  for (std::int64_t i = threadIdx.x; i < cols; i += kCount * kThreads) {
    float next[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) next[k] = i + k * kThreads < cols ? x[i + k * kThreads] : -INFINITY;
    row.add(next);
  }
  row = block_reduce(row);
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < cols; i += kThreads) y[i] = expf(x[i] - row.m) / row.d;
}

}  // namespace xgemm::lab::softmax
