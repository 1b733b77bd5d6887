// Reduces rows of any layout. A short row is one split, of `lanes` (1 to 32) threads; a longer one is divided into splits, one
// warp each, whose states are joined in order: by the row's CTA or, if CTAs share a row, by the last of them to finish.
//
// Layouts: any strides. With plan.vector the row consists of runs of stride 1 and is read 16 bytes at a time at any alignment;
//   otherwise element by element.
// Order of additions: by the row's splits and lanes (reduce/plan.h), not by its address nor by which warp or CTA takes what.
// Architectures: sm_80 and later. Limits: none but IndexMap's dims; 64-bit positions, 32-bit ones within a split.
// Floor: length * sizeof(T) bytes per row read once; one operation per element (logsumexp: one exp). Loads and arithmetic
//   overlap between warps: 32 per SM, each with 2 KB in flight.
#pragma once
#include "reduce/kernels/row_splits.cuh"

namespace xgemm::reduce {

/// Loads of a row's vectors, whose numbers count from the row's first element.
template <class Op>
struct RowLoads {
  using T = typename Op::T;
  static constexpr int kWidth = Pack<T>::kCount;
  const RowPlan& plan;
  const T* base;
  int lanes;
  bool one_run, aligned;  ///< the row is one run; it starts at a multiple of 16 bytes

  /// Vectors v, v + lanes, ... below `limit`, all of them whole, at any alignment.
  __device__ __forceinline__ void whole(uint4 (&raw)[kUnroll], std::int64_t v, std::int64_t limit) const {
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      raw[j] = padding<Op>(plan);
      if (v + j * lanes < limit) raw[j] = load_shifted16(base + plan.reduced.offset((v + j * lanes) * kWidth));
    }
  }
  /// Vector v element by element: it may be incomplete, its elements may lie anywhere.
  __device__ __forceinline__ uint4 elements(std::int64_t v) const {
    Pack<T> pack = as_pack<T>(padding<Op>(plan));
    const std::int64_t first = v * kWidth;
#pragma unroll
    for (int e = 0; e < kWidth; ++e)
      if (first + e < plan.length) pack.values[e] = base[plan.reduced.offset(first + e)];
    return as_raw(pack);
  }
  /// One step of a split that begins at vector `start`: its vectors v, v + lanes, ... below `count`, from a lane's first, `v`.
  __device__ __forceinline__ void step(uint4 (&raw)[kUnroll], std::int64_t start, int v, int count, int step_end) const {
    const bool complete = step_end <= count;
    const T* const p = base + (start + v) * kWidth;
    if (one_run && aligned) {
      load_aligned_step<Op>(plan, raw, p, v, lanes, count, complete);
    } else if (one_run && complete && lanes == kWarpSize && start + step_end < plan.full) {
      const int lane = static_cast<int>(threadIdx.x) & (kWarpSize - 1);
      uint4 behind = {0, 0, 0, 0};
      ShiftedRows<T>{kWarpSize, lane}.ask_step(reinterpret_cast<const char*>(p) - misalignment(p), raw, behind);
      shift_lanes<T>(raw, behind, lane, kWarpSize, misalignment(p));
    } else {
      whole(raw, start + v, start + count);
    }
  }
};

template <class Op>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks<Op>)
    reduce_rows(const __grid_constant__ RowPlan plan, const typename Op::T* __restrict__ in, void* __restrict__ out,
                unsigned* counters, typename Op::State* partials) {
  using T = typename Op::T;
  using State = typename Op::State;
  constexpr int kWidth = Pack<T>::kCount;
  extern __shared__ uint4 shared[];
  State* const states = reinterpret_cast<State*>(shared);
  __shared__ ptx::Barrier arrived;
  const ClusterJoin<Op> cluster{&arrived};
  cluster.open(plan);
  ptx::grid_release();
  in = ptx::grid_wait(in);

  const Convert<T> convert(plan);
  const int lanes = plan.lanes, lane = static_cast<int>(threadIdx.x) & (lanes - 1), teams = static_cast<int>(blockDim.x) / lanes;
  const bool whole = plan.splits == 1;  // a CTA takes rows of one split, else splits of one row
  const auto [row, first, items] = work_of_cta(plan, whole);
  const bool one_run = plan.vector && plan.reduced.dims == 1;
  IndexMap::Pair at{0, 0};
  if (!whole) at = plan.kept.offsets(row);

  typename Op::Extra extra{};
  if (!whole && threadIdx.x == 0) extra.aim(plan, at.out);
  typename Op::Local s = Op::start();
  // Lanes of a warp may work on different rows; all take the same number of steps.
  const int behind = (static_cast<int>(threadIdx.x) % kWarpSize) >> (31 - __clz(lanes));
  for (int item = static_cast<int>(threadIdx.x) / lanes; item - behind < items; item += teams) {
    const bool exists = item < items;
    if (whole && exists) at = plan.kept.offsets(first + item);
    const RowLoads<Op> loads{plan, in + at.in, lanes, one_run, misalignment(in + at.in) == 0};
    const std::int64_t start = whole ? 0 : (first + item) * plan.split_vectors,
                       end = min(start + plan.split_vectors, plan.vectors);
    const int steps_end = static_cast<int>(max(min(plan.full - start, plan.split_vectors), std::int64_t{0})),
              count = exists ? steps_end : 0;

    // argmax and argmin look for the position once in all of a warp's splits.
    const bool joint = Op::kFindsLater && !whole, now = plan.splits <= 4;  // find it at once: reading again costs more
    const int origin = joint ? item * static_cast<int>(plan.split_vectors) : 0;
    if (!joint) s = Op::start();
    if (whole && lane == 0 && exists) extra.aim(plan, at.out);
    for (int step = 0; step < steps_end; step += kUnroll * lanes) {
      uint4 raw[kUnroll];
      loads.step(raw, start, step + lane, count, step + kUnroll * lanes);
      push_step<Op>(convert, s, raw, (origin + step + lane) * kWidth, lanes * kWidth, now);
    }
    const int rest = exists ? static_cast<int>(end - start) : 0;
    if (plan.vector) {  // the row's incomplete last vector
      const int singles = steps_end < rest ? static_cast<int>(plan.length % kWidth) : 0;
      for (int e = lane; e < singles; e += lanes) {
        const T single = loads.base[plan.reduced.offset((start + steps_end) * kWidth + e)];
        push_single<Op>(convert, s, single, (origin + steps_end) * kWidth, e, now);
      }
    } else {
      for (int v = steps_end + lane; v < rest; v += lanes) {
        uint4 raw[1] = {loads.elements(start + v)};
        push_step<Op>(convert, s, raw, (origin + v) * kWidth, 0, now);
      }
    }
    if (whole && lane == 0 && exists) extra.template look<false>(plan, loads.base);
    State joined = Op::identity();
    if (!joint || item + teams >= items) {
      joined = Op::state(s, convert, lanes, now, (start - origin) * kWidth, [&](uint4(&raw)[kUnroll], std::uint32_t position) {
        const std::int64_t v = start - origin + position / kWidth;
        loads.whole(raw, v, plan.full);
        if (v >= plan.full) raw[0] = loads.elements(v);
      });
    }
    if (lane != 0 || !exists) continue;
    if (whole)
      Op::finish(plan, convert, joined, extra, out, at.out);
    else
      place_of_states(plan, states, partials, work_of_cta(plan, false).row, first)[item] = joined;
  }
  if (whole) return;

  if (threadIdx.x == 0) extra.template look<false>(plan, in + at.in);
  finish_row<Op>(plan, convert, items, work_of_cta(plan, false).row, states, extra, out, at.out, counters, partials, cluster);
}

}  // namespace xgemm::reduce
