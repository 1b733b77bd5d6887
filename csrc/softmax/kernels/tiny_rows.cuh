// Softmax of short rows that are not whole 16-byte vectors, loaded and stored one element at a time by 1 to 32 lanes, in a
// kernel of few instructions: a short launch waits for its instructions.
//
// Element i of a row belongs to lane i % lanes. Order of additions: the elements of a lane, then the lanes as a tree.
// Layouts: evenly spaced rows of stride 1 at any address; output contiguous; any alignment. Limits: lanes * kCount elements.
// Architectures: sm_80 and later. Floor: one read, one write.
#pragma once
#include "device/ptx/grid.cuh"
#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

struct TinyRows {
  std::int64_t outer, stride;  ///< rows; elements from one to the next in the input
  int length, lanes, log2_lanes;
  bool log;
};

template <class T, class O, int kCount>
__global__ void __launch_bounds__(kTinyThreads)
    softmax_tiny_rows(const __grid_constant__ TinyRows rows, const T* __restrict__ in, O* __restrict__ out) {
  using V = Value<T>;
  const int lanes = rows.lanes, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (kTinyThreads >> rows.log2_lanes) + (threadIdx.x >> rows.log2_lanes);
  const bool exists = row < rows.outer;
  const int held = exists ? (rows.length - lane + lanes - 1) >> rows.log2_lanes : 0;  // elements of this thread
  const T* p = in + (exists ? row * rows.stride : 0) + lane;
  O* q = out + row * rows.length + lane;
  asm volatile("" : "+l"(q));  // the compiler would compute the address anew for each element
  ptx::grid_release();
  p = ptx::grid_wait(p);

  V x[kCount];
#pragma unroll
  for (int k = 0; k < kCount; ++k) x[k] = k < held ? convert<V>(p[k * lanes]) : minus_infinity<V>();
  V m = x[0];
#pragma unroll
  for (int k = 1; k < kCount; ++k) m = larger(m, x[k]);
  m = join_lanes(m, lanes, [](V a, V b) { return larger(a, b); });

  const auto total = [&](const V(&terms)[kCount]) {
    V sum = terms[0];
#pragma unroll
    for (int k = 1; k < kCount; ++k) sum = add(sum, terms[k]);
    return join_lanes(sum, lanes, [](V a, V b) { return add(a, b); });
  };
  V terms[kCount];
  if (rows.log) {
    const Exponentials<O, V> exponential(m, true);
#pragma unroll
    for (int k = 0; k < kCount; ++k) terms[k] = exponential(x[k]);
    const V log_d = log(total(terms));
#pragma unroll
    for (int k = 0; k < kCount; ++k)
      if (k < held) q[k * lanes] = convert<O>(x[k] - m - log_d);
    return;
  }
  const Exponentials<O, V> exponential(m, false);
#pragma unroll
  for (int k = 0; k < kCount; ++k) terms[k] = exponential(x[k]);
  const V d = total(terms), r = reciprocal<O>(d);
#pragma unroll
  for (int k = 0; k < kCount; ++k)
    if (k < held) q[k * lanes] = convert<O>(divide<T>(terms[k], d, r));
}

}  // namespace xgemm::softmax
