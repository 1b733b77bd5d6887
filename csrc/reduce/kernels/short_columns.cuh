// Reduces short columns that lie side by side. kVectors: a thread reduces a 16-byte vector of columns. Else `lanes` (1 to 8)
// neighbouring threads reduce a column: lane l takes positions 8 l to 8 l + 7, and again 8 * lanes further on.
//
// Layouts: one reduced dim, any stride. kVectors: vectors at multiples of 16 bytes, which plan.kept maps; results contiguous in
//   their order. Order of additions: eight positions as a tree, trees in order, however many columns and lanes there are.
// Architectures: sm_80 and later. Limits: IndexMap's dims.
// Floor: every element read once, every result written once. Eight loads in flight a thread.
#pragma once
#include "device/ptx/grid.cuh"
#include "reduce/kernels/common.cuh"

namespace xgemm::reduce {

template <class Op, bool kVectors>
__global__ void __launch_bounds__(kShortColumnThreads)
    reduce_short_columns(const __grid_constant__ Plan plan, const typename Op::T* __restrict__ in, void* __restrict__ out) {
  using T = typename Op::T;
  constexpr int kWidth = kVectors ? Pack<T>::kCount : 1, kAhead = 8;
  const Convert<T> convert(plan);
  const int thread = static_cast<int>(threadIdx.x), length = static_cast<int>(plan.length), lanes = kVectors ? 1 : plan.lanes,
            lane = thread & (lanes - 1);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * plan.per_block,
                     left = plan.outputs / kWidth - first;  // vectors or columns
  const int mine = kVectors ? thread : thread >> (31 - __clz(lanes));
  const bool exists = mine < left;
  const IndexMap::Pair at = exists ? plan.kept.offsets(first + mine) : IndexMap::Pair{0, 0};
  const std::int64_t stride = plan.reduced.stride[0];
  ptx::grid_release();
  in = ptx::grid_wait(in);

  typename Op::Local s[kWidth];
#pragma unroll
  for (int c = 0; c < kWidth; ++c) s[c] = Op::start();
#pragma unroll 1
  for (int e = kAhead * lane; exists && e < length; e += kAhead * lanes) {
    const auto is_there = [&](int j) { return e + j < length; };
    std::conditional_t<kVectors, uint4, T> raw[kAhead];
    const T* p = in + at.in + e * stride;
#pragma unroll
    for (int j = 0; j < kAhead; ++j, p += stride) {
      if (!is_there(j)) continue;
      if constexpr (kVectors)
        raw[j] = load_aligned16(p);
      else
        raw[j] = *p;
    }
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      T x[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if constexpr (kVectors)
          x[j] = as_pack<T>(raw[j]).values[c];
        else
          x[j] = raw[j];
      }
      push_tree<Op>(plan, convert, s[c], x, e, 1, is_there);
    }
  }
  const auto state_of_column = [&](int c) {
    return Op::state(s[c], convert, 1, true, 0, [](uint4(&)[kUnroll], std::uint32_t) {});
  };
  if constexpr (kVectors) {
    // Through shared memory: a thread's results are neighbours, so that direct stores would touch each sector kWidth times.
    constexpr int kMostResultBytes = 8;
    __shared__ alignas(16) unsigned char results[kShortColumnThreads * kWidth * kMostResultBytes];
#pragma unroll
    for (int c = 0; c < kWidth; ++c)
      Op::finish(plan, convert, state_of_column(c), typename Op::Extra{}, results, thread * kWidth + c);
    __syncthreads();
    const int bytes = kWidth * plan.result_bytes, end = static_cast<int>(min(left, std::int64_t{kShortColumnThreads})) * bytes;
    unsigned char* const to = static_cast<unsigned char*>(out) + first * bytes;
    for (int i = thread * 16; i < end; i += kShortColumnThreads * 16)
      *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(results + i);
  } else {
    const typename Op::State own = state_of_column(0);
    typename Op::State joined = own;
    for (int i = 1; i < lanes; ++i) joined = Op::merge(joined, Op::shuffle(own, i));  // lane 0: the lanes' in order
    if (exists && lane == 0) Op::finish(plan, convert, joined, typename Op::Extra{}, out, at.out);
  }
}

}  // namespace xgemm::reduce
