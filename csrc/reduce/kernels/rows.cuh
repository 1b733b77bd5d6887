// Reduces rows. A short row is one strip, of `lanes` (1 to 32) threads; a longer one is divided into strips, one warp each,
// whose states are joined in order: by the row's block or, if blocks share a row, by the last of them to finish.
//
// Layouts: any strides. With plan.vector the row is made of runs of stride 1 and is read 16 bytes at a time at any alignment;
//   otherwise element by element. With plan.pieces a strip is part of one run. Which thread reads which element depends on the
//   row's length and strides only, not on its address. The order of additions does not depend on which warp or block reduces
//   which strip (or short row).
// Architectures: sm_80 and later. Limits: none but IndexMap's dims; 64-bit positions, 32-bit ones within a strip.
// Floor: length * sizeof(T) bytes per row read once; one operation per element (logsumexp: one exp). Loads and arithmetic
//   overlap between warps: 32 per SM, each with 2 KB in flight.
#pragma once
#include "reduce/kernels/strips.cuh"

namespace xgemm::reduce {

template <class Op>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks<Op>)
    reduce_rows(const __grid_constant__ Plan plan, const typename Op::T* __restrict__ in, void* __restrict__ out,
                unsigned* counters, typename Op::State* partials) {
  using T = typename Op::T;
  using V = typename Op::V;
  using State = typename Op::State;
  constexpr int kWidth = Pack<T>::kCount;
  extern __shared__ uint4 shared[];
  State* const states = reinterpret_cast<State*>(shared);
  __shared__ ptx::Barrier arrived;
  const Meeting<Op> meeting{&arrived};
  meeting.open(plan);
  ptx::grid_release();
  in = ptx::grid_wait(in);

  const Convert<T> convert(plan);
  const int lanes = plan.lanes, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int teams = static_cast<int>(blockDim.x) / lanes;
  const bool whole = plan.strips == 1;  // a block's units of work are rows of one strip, else strips of one row
  const auto [row, first, units] = share_of(plan, whole);
  State* const kept_states = place_of_states(plan, states, partials, row, first);
  const bool run = plan.vector && plan.reduced.dims == 1;
  IndexMap::Pair at{0, 0};
  if (!whole) at = plan.kept.offsets(row);

  typename Op::Extra extra{};
  if (!whole && threadIdx.x == 0) extra.aim(plan, at.out);
  typename Op::Local s = Op::start();
  // Lanes of a warp may work on different rows; all take the same number of steps.
  const int behind = (static_cast<int>(threadIdx.x) % kWarpSize) >> (31 - __clz(lanes));
  for (int unit = static_cast<int>(threadIdx.x) / lanes; unit - behind < units; unit += teams) {
    const bool exists = unit < units;
    if (whole && exists) at = plan.kept.offsets(first + unit);
    const T* base = in + at.in;
    const std::int64_t start = whole ? 0 : (first + unit) * plan.chunk, end = min(start + plan.chunk, plan.vectors);
    const int steps_end = static_cast<int>(max(min(plan.full - start, plan.chunk), std::int64_t{0})),
              count = exists ? steps_end : 0;
    const bool aligned = misalignment(base) == 0;
    // Loads vectors v, v + lanes, ... of the row below `limit`, at any alignment; or the one that may be incomplete.
    const auto fetch_full = [&](uint4(&raw)[kUnroll], std::int64_t v, std::int64_t limit) {
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) {
        raw[j] = padding<Op>(plan);
        if (v + j * lanes < limit) raw[j] = load_shifted16(base + plan.reduced.offset((v + j * lanes) * kWidth));
      }
    };
    const auto fetch_other = [&](std::int64_t v) {
      Pack<T> pack = as_pack<T>(padding<Op>(plan));
      const std::int64_t first_element = v * kWidth;
#pragma unroll
      for (int e = 0; e < kWidth; ++e)
        if (first_element + e < plan.length) pack.values[e] = base[plan.reduced.offset(first_element + e)];
      return as_raw(pack);
    };

    // argmax and argmin look for the position once in all of a warp's strips.
    const bool joint = Op::kFindsLater && !whole, now = plan.strips <= 4;  // find it at once: reading again costs more
    const int origin = joint ? unit * static_cast<int>(plan.chunk) : 0;
    if (!joint) s = Op::start();
    if (whole && lane == 0 && exists) extra.aim(plan, at.out);
    for (int step = 0; step < steps_end; step += kUnroll * lanes) {
      const int v = step + lane;
      uint4 raw[kUnroll];
      const T* p = base + (start + v) * kWidth;
      const bool complete = step + kUnroll * lanes <= count;
      if (run && aligned && complete) {
#pragma unroll
        for (int j = 0; j < kUnroll; ++j) raw[j] = load_aligned16(p + j * lanes * kWidth);
      } else if (run && aligned) {
#pragma unroll
        for (int j = 0; j < kUnroll; ++j) {
          raw[j] = padding<Op>(plan);
          if (v + j * lanes < count) raw[j] = load_aligned16(p + j * lanes * kWidth);
        }
      } else if (run && !aligned && complete && lanes == kWarpSize && start + step + kUnroll * kWarpSize < plan.full) {
        load_warp_shifted16(p, raw);
      } else {
        fetch_full(raw, start + v, start + count);
      }
      push_step<Op>(convert, s, raw, (origin + v) * kWidth, lanes * kWidth, count * kWidth, now);
    }
    const int rest = exists ? static_cast<int>(end - start) : 0;
    if (plan.vector) {  // the row's incomplete last vector
      const int singles = steps_end < rest ? static_cast<int>(plan.length % kWidth) : 0;
      for (int e = lane; e < singles; e += lanes) {
        const T single = base[plan.reduced.offset((start + steps_end) * kWidth + e)];
        push_single<Op>(convert, s, single, (origin + steps_end) * kWidth, e, now);
      }
    } else {
      for (int v = steps_end + lane; v < rest; v += lanes) {
        uint4 raw[1] = {fetch_other(start + v)};
        push_step<Op>(convert, s, raw, (origin + v) * kWidth, 0,
                      static_cast<int>(min(plan.length - start * kWidth, INT64_C(0x7fffffff))), now);
      }
    }
    if (whole && lane == 0 && exists) extra.template look<false>(plan, base);
    State joined = Op::identity();
    if (!joint || unit + teams >= units) {
      joined = Op::state(s, convert, lanes, now, (start - origin) * kWidth, [&](uint4(&raw)[kUnroll], std::uint32_t position) {
        const std::int64_t v = start - origin + position / kWidth;
        fetch_full(raw, v, plan.full);
        if (v >= plan.full) raw[0] = fetch_other(v);
      });
    }
    if (lane != 0 || !exists) continue;
    if (whole)
      Op::finish(plan, convert, joined, extra, out, at.out);
    else
      kept_states[unit] = joined;
  }
  if (whole) return;

  if (threadIdx.x == 0) extra.template look<false>(plan, in + at.in);
  finish_row<Op>(plan, convert, units, row, states, extra, out, at.out, counters, partials, meeting);
}

}  // namespace xgemm::reduce
