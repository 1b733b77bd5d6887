// Softmax of short rows that are not whole 16-byte vectors, loaded and stored one element at a time by 1 to 32 lanes, in a
// kernel of few instructions: a short launch waits for its instructions.
//
// Element i of a row belongs to lane i % lanes. The order of additions is that of softmax_odd_rows, which gives the same bits
// where both apply: elements that are lanes * kSums apart in order, then sums within a 16-byte vector, then vectors.
// Layouts: rows of stride 1 at any address; output contiguous; any alignment. Limits: lanes * kCount elements.
// Architectures: sm_80 and later. Floor: one read, one write.
#pragma once
#include "device/ptx/grid.cuh"
#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

struct TinyRows {
  std::int64_t outer;
  int length, lanes, log2_lanes;
  bool log;
};

/// Evenly spaced rows whose number and distance fit 31 bits; other rows have an IndexMap.
struct ShortStride {
  unsigned stride;
  __device__ __forceinline__ std::uint64_t offset(unsigned row) const { return static_cast<std::uint64_t>(row) * stride; }
};

/// kSums: partial sums of a thread; more than 1 only with 32 lanes.
template <class T, class O, int kCount, int kSums, class Map>
__global__ void __launch_bounds__(kTinyThreads)
    softmax_tiny_rows(const __grid_constant__ TinyRows rows, const __grid_constant__ Map map, const T* __restrict__ in,
                      O* __restrict__ out) {
  using V = Value<T>;
  using Row = std::conditional_t<std::is_same_v<Map, ShortStride>, unsigned, std::int64_t>;
  constexpr int kWidth = Pack<T>::kCount;
  const int lanes = kSums > 1 ? kWarpSize : rows.lanes, log2_lanes = kSums > 1 ? 5 : rows.log2_lanes;
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const Row row =
      static_cast<Row>(blockIdx.x) * static_cast<Row>(kTinyThreads >> log2_lanes) + static_cast<Row>(threadIdx.x >> log2_lanes);
  const bool exists = row < static_cast<Row>(rows.outer);
  const int held = exists ? (rows.length - lane + lanes - 1) >> log2_lanes : 0;  // elements of this thread
  const T* p = in + (exists ? map.offset(row) : 0) + lane;
  O* q = out + (static_cast<std::uint64_t>(row) * static_cast<unsigned>(rows.length) + static_cast<unsigned>(lane));
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
    V sums[kSums];
#pragma unroll
    for (int k = 0; k < kCount; ++k) sums[k % kSums] = k < kSums ? terms[k] : add(sums[k % kSums], terms[k]);
#pragma unroll
    for (V& sum : sums) sum = join_lanes(sum, min(lanes, kWidth), [](V a, V b) { return add(a, b); });
#pragma unroll
    for (int half = kSums / 2; half > 0; half /= 2) {
#pragma unroll
      for (int s = 0; s < half; ++s) sums[s] = add(sums[s], sums[s + half]);
    }
    for (int offset = lanes / 2; offset >= kWidth; offset /= 2)
      sums[0] = add(sums[0], __shfl_xor_sync(kFullWarp, sums[0], offset));
    return sums[0];
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
