// Reduces short columns that lie side by side: a thread reduces one 16-byte vector of columns, all positions in order.
//
// Layouts: vectors at multiples of 16 bytes, one reduced dim; plan.kept maps vectors; results contiguous in the vectors' order,
//   16 bytes or more a vector. Order of additions: that of reduce_elements in turn: eight as a tree, trees in order.
// Architectures: sm_80 and later. Limits: IndexMap's dims; 2^31 blocks.
// Floor: every element read once, every result written once. Eight loads in flight a thread.
#pragma once
#include "device/ptx/grid.cuh"
#include "reduce/kernels/common.cuh"

namespace xgemm::reduce {

template <class Op>
__global__ void __launch_bounds__(kShortColumnThreads)
    reduce_short_columns(const __grid_constant__ Plan plan, const typename Op::T* __restrict__ in, void* __restrict__ out) {
  using T = typename Op::T;
  constexpr int kWidth = Pack<T>::kCount, kAhead = 8, kMostResultBytes = 8;
  // Results leave through shared memory: a thread's are neighbours, so that direct stores would touch each sector kWidth times.
  __shared__ alignas(16) unsigned char results[kShortColumnThreads * kWidth * kMostResultBytes];
  const Convert<T> convert(plan);
  const int thread = static_cast<int>(threadIdx.x), length = static_cast<int>(plan.length);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kShortColumnThreads,
                     left = plan.outputs / kWidth - first;  // vectors
  const bool exists = thread < left;
  const std::int64_t at = exists ? plan.kept.offset(first + thread) : 0, stride = plan.reduced.stride[0];
  ptx::grid_release();
  in = ptx::grid_wait(in);

  const T* p = in + at;
  typename Op::Local s[kWidth];
#pragma unroll
  for (int c = 0; c < kWidth; ++c) s[c] = Op::start();
#pragma unroll 1
  for (int e = 0; exists && e < length; e += kAhead, p += kAhead * stride) {
    const auto is_there = [&](int j) { return e + j < length; };
    uint4 raw[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      if (is_there(j)) raw[j] = load_aligned16(p + j * stride);
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      T x[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) x[j] = as_pack<T>(raw[j]).values[c];
      push_tree<Op>(plan, convert, s[c], x, e, 1, is_there);
    }
  }
  const auto again = [](uint4(&)[kUnroll], std::uint32_t) {};
#pragma unroll
  for (int c = 0; c < kWidth; ++c)
    Op::finish(plan, convert, Op::state(s[c], convert, 1, true, 0, again), typename Op::Extra{}, results, thread * kWidth + c);
  __syncthreads();
  const int bytes = kWidth * plan.result_bytes, end = static_cast<int>(min(left, std::int64_t{kShortColumnThreads})) * bytes;
  unsigned char* const to = static_cast<unsigned char*>(out) + first * bytes;
  for (int i = thread * 16; i < end; i += kShortColumnThreads * 16)
    *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(results + i);
}

}  // namespace xgemm::reduce
