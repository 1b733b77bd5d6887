// Reduces short rows whose elements are not neighbours (short columns with several reduced dims, too), one element at a time: 1
// to 32 neighbouring lanes per row.
//
// Layouts: any strides. A lane adds elements lane, lane + lanes, ... in order, eight as a tree; then the lanes are joined.
// Architectures: sm_80 and later. Limits: IndexMap's dims.
// Floor: the sectors that hold an element, read once. Such problems are mostly a launch and one latency, so the kernel is short.
#pragma once
#include "device/ptx/grid.cuh"
#include "reduce/kernels/common.cuh"

namespace xgemm::reduce {

template <class Op>
__global__ void __launch_bounds__(256)
    reduce_elements(const __grid_constant__ Plan plan, const typename Op::T* __restrict__ in, void* __restrict__ out) {
  using T = typename Op::T;
  constexpr int kAhead = 8;
  const Convert<T> convert(plan);
  const int lanes = plan.lanes, lane = static_cast<int>(threadIdx.x) & (lanes - 1), length = static_cast<int>(plan.length);
  const std::int64_t row = blockIdx.x * plan.per_block + (threadIdx.x >> (31 - __clz(lanes)));
  const bool exists = row < plan.outputs;
  const IndexMap::Pair at = exists ? plan.kept.offsets(row) : IndexMap::Pair{0, 0};
  ptx::grid_release();
  in = ptx::grid_wait(in);

  typename Op::Extra extra{};
  if (exists && lane == 0) extra.aim(plan, at.out);
  typename Op::Local s = Op::start();
  const T* const p = in + at.in;
  for (int e = lane; exists && e < length; e += kAhead * lanes) {
    std::int64_t offset[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) offset[j] = (e + j * lanes) * plan.reduced.stride[0];
    if (plan.reduced.dims > 1) {
#pragma unroll 1
      for (int i = 0; i < kAhead; ++i) {  // one copy of the map's code: the offsets move up
#pragma unroll
        for (int j = 1; j < kAhead; ++j) offset[j - 1] = offset[j];
        offset[kAhead - 1] = plan.reduced.offset(e + i * lanes);
      }
    }
    const auto is_there = [&](int j) { return e + j * lanes < length; };
    T x[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      if (is_there(j)) x[j] = p[offset[j]];
    push_tree<Op>(plan, convert, s, x, e, lanes, is_there);
  }
  if (exists && lane == 0) extra.template look<false>(plan, in + at.in);
  const auto again = [](uint4(&)[kUnroll], std::uint32_t) {};
  const typename Op::State joined = Op::state(s, convert, lanes, true, 0, again);
  if (exists && lane == 0) Op::finish(plan, convert, joined, extra, out, at.out);
}

}  // namespace xgemm::reduce
