// Reduces columns of up to 1024 positions that lie side by side. A thread reads kWidth columns at once: 1, or vectors of 8 or 16
// bytes. It has all of their positions (plan.strips == 1), or several threads take eight positions in turn and their results meet
// in shared memory. A CTA has `lanes` threads side by side.
//
// Layouts: one reduced dim, any stride. kWidth > 1: aligned vectors, which plan.kept maps; results contiguous in their order.
// Order of additions: eight positions as a tree, the trees in two chains, of the even and of the odd ones, in order; however
//   many columns and threads there are.
// Architectures: sm_80 and later. Limits: IndexMap's dims.
// Floor: every element read once, every result written once. Eight loads in flight a thread.
#pragma once
#include "device/ptx/grid.cuh"
#include "reduce/kernels/common.cuh"

namespace xgemm::reduce {

/// Joins the trees of a column; two chains halve the depth of the sum.
template <class Op>
struct TreeChains {
  using S = Part<Op>;
  S next = start(), other = start();

  static __device__ __forceinline__ S start() {
    if constexpr (PartOf<Op>::kIsLess)
      return Op::start_part(-1);
    else
      return Op::identity();
  }
  __device__ __forceinline__ void add(S tree) {
    const S sum = Op::merge(next, tree);
    next = other;
    other = sum;
  }
  __device__ __forceinline__ S result() const { return Op::merge(next, other); }
};

/// Bytes of a column's states in shared memory.
template <class Op>
XGEMM_HOST_DEVICE int short_column_state_bytes(const Plan& plan) {
  return plan.strips == 1 ? 0 : static_cast<int>(plan.strips) * static_cast<int>(sizeof(Part<Op>));
}
/// Dynamic shared memory: states that meet, and behind them the results of vectors.
template <class Op>
int short_column_bytes(const Plan& plan) {
  return plan.lanes * plan.width * (short_column_state_bytes<Op>(plan) + (plan.vector ? plan.result_bytes : 0));
}

template <class Op, int kWidth>
__global__ void __launch_bounds__(most_short_column_threads(kWidth * sizeof(typename Op::T)))
    reduce_short_columns(const __grid_constant__ Plan plan, const typename Op::T* __restrict__ in, void* __restrict__ out) {
  using T = typename Op::T;
  using S = Part<Op>;
  constexpr int kAhead = kShortColumnTree;
  constexpr bool kVectors = kWidth > 1;
  using Vector = std::conditional_t<kWidth * sizeof(T) == 8, uint2, uint4>;
  constexpr bool kOneState = PartOf<Op>::kIsLess;  // argmax: of all positions of a thread
  struct alignas(kVectors ? 16 : alignof(S)) States {
    S s[kWidth];
  };
  extern __shared__ __align__(16) unsigned char short_column_memory[];
  States* const states = reinterpret_cast<States*>(short_column_memory);
  unsigned char* const results = short_column_memory + plan.lanes * kWidth * short_column_state_bytes<Op>(plan);

  const Convert<T> convert(plan);
  const int thread = static_cast<int>(threadIdx.x), length = static_cast<int>(plan.length), lanes = plan.lanes,
            lane = thread & (lanes - 1), team = thread >> (31 - __clz(lanes)), step = plan.threads >> (31 - __clz(lanes));
  const bool alone = plan.strips == 1;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * lanes, left = plan.outputs / kWidth - first;
  const bool exists = lane < left;
  const IndexMap::Pair at = exists ? plan.kept.offsets(first + lane) : IndexMap::Pair{0, 0};
  const std::int64_t stride = plan.reduced.stride[0];
  ptx::grid_release();
  in = ptx::grid_wait(in);

  const auto load = [](const T* p) {
    if constexpr (kWidth == Pack<T>::kCount) return load_aligned16(p);
    uint4 raw{};
    if constexpr (kVectors) {
      const uint2 half = *reinterpret_cast<const uint2*>(p);
      raw.x = half.x;
      raw.y = half.y;
    } else {
      Pack<T> single{};
      single.values[0] = *p;
      raw = as_raw(single);
    }
    return raw;
  };
  S best[Pack<T>::kCount];  // with kOneState, the first kWidth
  TreeChains<Op> chains[kWidth];
  if constexpr (kOneState) {
#pragma unroll
    for (int c = 0; c < Pack<T>::kCount; ++c) best[c] = Op::start_part(kAhead * team);
  }
#pragma unroll 1
  for (int tree = team; exists && kAhead * tree < length; tree += step) {
    const int e = kAhead * tree;
    uint4 raw[kAhead];
    const T* p = in + at.in + e * stride;
    // Two loops of loads: the branch also keeps ptxas from placing loads after the first additions.
    if (e + kAhead <= length) {
#pragma unroll
      for (int j = 0; j < kAhead; ++j, p += stride) raw[j] = load(p);
    } else {
#pragma unroll
      for (int j = 0; j < kAhead; ++j, p += stride) raw[j] = e + j < length ? load(p) : padding<Op>(plan);
    }
    if constexpr (kOneState) {
#pragma unroll
      for (int j = 0; j < kAhead; ++j) Op::push(best, raw[j], e + j, convert);
    } else {
      States trees;
#pragma unroll
      for (int c = 0; c < kWidth; ++c) {
        typename Op::V x[kAhead];
#pragma unroll
        for (int j = 0; j < kAhead; ++j) x[j] = value_of<Op>(convert, raw[j], c);
        trees.s[c] = Op::identity();
        Op::push(trees.s[c], x, maximum_of(x), [](int) { return 0; });
        if (alone) chains[c].add(trees.s[c]);
      }
      if (!alone) states[tree * lanes + lane] = trees;
    }
  }

  const auto finish = [&](S s, [[maybe_unused]] int c) {
    typename Op::State state;
    if constexpr (kOneState)
      state = Op::state(s, 0, 1, 0);
    else
      state = s;
    // Through shared memory: a thread's results are neighbours, so that direct stores would touch each sector kWidth times.
    if constexpr (kVectors)
      Op::finish(plan, convert, state, typename Op::Extra{}, results, c);
    else
      Op::finish(plan, convert, state, typename Op::Extra{}, out, at.out);
  };
  const int end = static_cast<int>(min(left, std::int64_t{lanes})) * kWidth;
  if (alone) {
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      if (!exists) continue;
      if constexpr (kOneState)
        finish(best[c], lane * kWidth + c);
      else
        finish(chains[c].result(), lane * kWidth + c);
    }
  } else {
    if constexpr (kOneState) {
      States mine;
#pragma unroll
      for (int c = 0; c < kWidth; ++c) mine.s[c] = best[c];
      states[thread] = mine;
    }
    __syncthreads();
    const S* const of_column = reinterpret_cast<const S*>(states);
    const int strips = static_cast<int>(plan.strips);
    for (int c = thread; c < end; c += plan.threads) {
      TreeChains<Op> joined;
#pragma unroll 4
      for (int i = 0; i < strips; ++i) joined.add(of_column[i * lanes * kWidth + c]);
      finish(joined.result(), c);
    }
  }
  if constexpr (kVectors) {
    __syncthreads();
    unsigned char* const to = static_cast<unsigned char*>(out) + first * kWidth * plan.result_bytes;
    constexpr int kBytes = sizeof(Vector);
    for (int i = thread * kBytes; i < end * plan.result_bytes; i += plan.threads * kBytes)
      *reinterpret_cast<Vector*>(to + i) = *reinterpret_cast<const Vector*>(results + i);
  }
}

}  // namespace xgemm::reduce
