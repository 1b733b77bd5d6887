// Reduces columns of up to 1024 positions that lie side by side. A thread reads kWidth columns at once: one, or a vector of 16
// bytes. It has all of their positions, or plan.teams threads take eight positions in turn and join their states in shared
// memory. A CTA has `lanes` threads side by side.
//
// Layouts: one reduced dim, any stride. kWidth > 1: aligned vectors, which plan.kept maps; results contiguous in their order.
// Order of additions: eight positions as a tree, a thread's trees in two chains, then the teams in order.
// Architectures: sm_80 and later. Limits: IndexMap's dims.
// Floor: every element read once, every result written once. Eight loads in flight a thread.
#pragma once
#include "device/ptx/grid.cuh"
#include "reduce/kernels/common.cuh"

namespace xgemm::reduce {

/// kWidth columns of a thread, whose first position the constructor takes. Two chains of trees halve the depth of a sum.
template <class Op, int kWidth>
struct ShortColumns {
  using T = typename Op::T;
  using S = Part<Op>;
  S next[kWidth], other[kWidth];

  __device__ __forceinline__ explicit ShortColumns(int) {
#pragma unroll
    for (int c = 0; c < kWidth; ++c) next[c] = other[c] = Op::identity();
  }
  /// Adds kTree positions of each column.
  __device__ __forceinline__ void add(const uint4 (&raw)[kTree], int, const Convert<T>& convert) {
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      typename Op::V x[kTree];
#pragma unroll
      for (int j = 0; j < kTree; ++j) x[j] = value_of<Op>(convert, raw[j], c);
      S tree = Op::identity();
      Op::push(tree, x, maximum_of(x), [](int) { return 0; });
      const S sum = Op::merge(next[c], tree);
      next[c] = other[c];
      other[c] = sum;
    }
  }
  __device__ __forceinline__ S result(int c) const { return Op::merge(next[c], other[c]); }
  static __device__ __forceinline__ typename Op::State state(const S& s) { return s; }
};

/// argmax: the positions are compared one by one.
template <class Op, int kWidth>
  requires kPartIsLess<Op>
struct ShortColumns<Op, kWidth> {
  using T = typename Op::T;
  using S = Part<Op>;
  S best[Pack<T>::kCount];  // the first kWidth

  __device__ __forceinline__ explicit ShortColumns(int position) {
#pragma unroll
    for (S& s : best) s = Op::start_part(position);
  }
  __device__ __forceinline__ void add(const uint4 (&raw)[kTree], int position, const Convert<T>& convert) {
#pragma unroll
    for (int j = 0; j < kTree; ++j) Op::push(best, raw[j], position + j, convert);
  }
  __device__ __forceinline__ S result(int c) const { return best[c]; }
  static __device__ __forceinline__ typename Op::State state(const S& s) { return Op::state(s, 0, 1, 0); }
};

/// Dynamic shared memory for the states of teams, behind which are the results of vectors.
template <class Op>
XGEMM_HOST_DEVICE int short_column_state_bytes(const ShortColumnPlan& plan) {
  return plan.teams == 1 ? 0 : plan.threads * plan.width * static_cast<int>(sizeof(Part<Op>));
}

template <class Op, int kWidth>
__global__ void __launch_bounds__(most_short_column_threads(kWidth * sizeof(typename Op::T)))
    reduce_short_columns(const __grid_constant__ ShortColumnPlan plan, const typename Op::T* __restrict__ in,
                         void* __restrict__ out) {
  using T = typename Op::T;
  using S = Part<Op>;
  constexpr bool kVectors = kWidth > 1;
  struct alignas(kVectors ? 16 : alignof(S)) States {
    S s[kWidth];
  };
  extern __shared__ __align__(16) unsigned char short_column_memory[];
  States* const states = reinterpret_cast<States*>(short_column_memory);
  unsigned char* const results = short_column_memory + short_column_state_bytes<Op>(plan);

  const Convert<T> convert(plan);
  const int thread = static_cast<int>(threadIdx.x), length = static_cast<int>(plan.length), lanes = plan.lanes,
            lane = thread & (lanes - 1), team = thread >> (31 - __clz(lanes));
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * lanes, left = plan.outputs / kWidth - first;
  const bool exists = lane < left;
  const IndexMap::Pair at = exists ? plan.kept.offsets(first + lane) : IndexMap::Pair{0, 0};
  const std::int64_t stride = plan.reduced.stride[0];
  ptx::grid_release();
  in = ptx::grid_wait(in);

  const auto load = [](const T* p) {
    if constexpr (kVectors) return load_aligned16(p);
    Pack<T> single{};
    single.values[0] = *p;
    return as_raw(single);
  };
  ShortColumns<Op, kWidth> columns(kTree * team);
#pragma unroll 1
  for (int e = kTree * team; exists && e < length; e += kTree * plan.teams) {
    uint4 raw[kTree];
    const T* p = in + at.in + e * stride;
    // Two loops of loads: the branch also keeps ptxas from placing loads after the first additions.
    if (e + kTree <= length) {
#pragma unroll
      for (int j = 0; j < kTree; ++j, p += stride) raw[j] = load(p);
    } else {
#pragma unroll
      for (int j = 0; j < kTree; ++j, p += stride) raw[j] = e + j < length ? load(p) : padding<Op>(plan);
    }
    columns.add(raw, e, convert);
  }

  const auto finish = [&](S s, [[maybe_unused]] int c) {
    const typename Op::State state = ShortColumns<Op, kWidth>::state(s);
    // Through shared memory: a thread's results are neighbours, so that direct stores would touch each sector kWidth times.
    if constexpr (kVectors)
      Op::finish(plan, convert, state, typename Op::Extra{}, results, c);
    else
      Op::finish(plan, convert, state, typename Op::Extra{}, out, at.out);
  };
  const int end = static_cast<int>(min(left, std::int64_t{lanes})) * kWidth;
  if (plan.teams == 1) {
#pragma unroll
    for (int c = 0; c < kWidth; ++c)
      if (exists) finish(columns.result(c), lane * kWidth + c);
  } else {
    States mine;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) mine.s[c] = columns.result(c);
    states[thread] = mine;
    __syncthreads();
    const S* const of_column = reinterpret_cast<const S*>(states);
    for (int c = thread; c < end; c += plan.threads) {
      S joined = of_column[c];
#pragma unroll 4
      for (int i = 1; i < plan.teams; ++i) joined = Op::merge(joined, of_column[i * lanes * kWidth + c]);
      finish(joined, c);
    }
  }
  if constexpr (kVectors) {
    __syncthreads();
    unsigned char* const to = static_cast<unsigned char*>(out) + first * kWidth * plan.result_bytes;
    for (int i = thread * 16; i < end * plan.result_bytes; i += plan.threads * 16)
      *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(results + i);
  }
}

}  // namespace xgemm::reduce
