// Reduces few rows of up to kMostRowSteps steps in the order of reduce_rows: a CTA a row, and for each step the lanes that take
// all of a strip's steps there, so that all loads of a row are in flight at once. A strip's steps are joined lane by lane.
//
// Layouts: rows of stride 1 at any address. Operators whose push() of a step is merge() with the step's own state: sums, maxima.
// Architectures: sm_80 and later. Limits: strips of four steps, up to kMostRowSteps steps a row.
// Floor: every element read once; one latency of memory and two barriers.
#pragma once
#include "reduce/kernels/operators/maximum.cuh"
#include "reduce/kernels/operators/sum.cuh"
#include "reduce/kernels/strips.cuh"

namespace xgemm::reduce {

/// Is push() of a step the merge() with the step's own state?
template <class Op>
inline constexpr bool kAddsSteps = std::is_same_v<Op, Sum<typename Op::T>> || std::is_same_v<Op, Maximum<typename Op::T>>;

template <class Op>
__global__ void __launch_bounds__(kMostRowSteps* kWarpSize)
    reduce_row_steps(const __grid_constant__ Plan plan, const typename Op::T* __restrict__ in, void* __restrict__ out) {
  using T = typename Op::T;
  using State = typename Op::State;
  static_assert(kAddsSteps<Op>);
  constexpr int kWidth = Pack<T>::kCount, kStripSteps = static_cast<int>(kStrip) / (kUnroll * kWarpSize);
  __shared__ State steps[kMostRowSteps * kWarpSize], strips[kMostRowSteps / kStripSteps];
  ptx::grid_release();
  in = ptx::grid_wait(in);

  const Convert<T> convert(plan);
  const int lanes = plan.lanes, thread = static_cast<int>(threadIdx.x), lane = thread & (lanes - 1),
            team = thread >> (31 - __clz(lanes)), step = kUnroll * lanes;
  const IndexMap::Pair at = plan.kept.offsets(blockIdx.x);
  const T* const row = in + at.in;
  const int full = static_cast<int>(plan.full), count = static_cast<int>(plan.strips), v = team * step + lane;
  uint4 raw[kUnroll];
  const auto fetch = [&](const auto& load) {
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      raw[j] = padding<Op>(plan);
      if (v + j * lanes < full) raw[j] = load(row + (v + j * lanes) * kWidth);
    }
  };
  misalignment(row) == 0 ? fetch([](const T* p) { return load_aligned16(p); })
                         : fetch([](const T* p) { return load_shifted16(p); });
  // The elements of the incomplete last vector come after the last strip's steps.
  const bool has_single = team == count - 1 && lane < static_cast<int>(plan.length % kWidth);
  const T single = row[has_single ? full * kWidth + lane : 0];
  typename Op::Local s = Op::start();
  push_step<Op>(convert, s, raw, 0, 0, 0, true);
  steps[thread] = s;
  __syncthreads();
  s = Op::start();
  if (team < count) {
#pragma unroll
    for (int i = 0; i < kStripSteps; ++i)
      if ((team * kStripSteps + i) * step < full) s = Op::merge(s, steps[(team * kStripSteps + i) * lanes + lane]);
    if (has_single) push_single<Op>(convert, s, single, 0, 0, true);
  }
  s = Op::join(s, lanes);
  if (count > 1) {
    if (lane == 0 && team < count) strips[team] = s;
    __syncthreads();
    if (team == 0) s = join_block<Op>(count, [&](std::int64_t i) { return strips[i]; }, strips);
  }
  if (thread == 0) Op::finish(plan, convert, s, typename Op::Extra{}, out, at.out);
}

}  // namespace xgemm::reduce
