// What the online variants share: the maximum so far and the sum of exp(x - maximum), and how threads merge theirs.
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

/// The pairs of all threads as one: m = max m_i, d = sum of d_i exp(m_i - m). Merged two by two the pairs would give the same,
/// but with two exponentials at each of a block's eight steps instead of one in all: more than a short row itself has.
__device__ __forceinline__ MaxSum merge(MaxSum mine) {
  const float m = block_reduce(mine.m, Max{});
  return {m, block_reduce(mine.d * expf(mine.m - base_of(m)), Sum{})};
}

/// One pass reads a row, kCount elements a thread and step, and one writes it.
template <int kCount>
__global__ void __launch_bounds__(kThreads) online_kernel(const __grid_constant__ Problem p) {
  const float* x = p.x + blockIdx.x * p.cols;
  float* y = p.y + blockIdx.x * p.cols;
  const std::int64_t cols = p.cols;
  MaxSum row{-INFINITY, 0};
#pragma unroll 4 / kCount
  for (std::int64_t i = threadIdx.x; i < cols; i += kCount * kThreads) {
    float next[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) next[k] = i + k * kThreads < cols ? x[i + k * kThreads] : -INFINITY;
    row.add(next);
  }
  row = merge(row);
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < cols; i += kThreads) y[i] = expf(x[i] - row.m) / row.d;
}

}  // namespace xgemm::lab::softmax
