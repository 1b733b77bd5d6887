// Reduces evenly spaced rows of stride 1, in the order of reduce_rows but without the code for other layouts, which would take
// most of a short row's issue slots.
//
// Layouts: `Runs`. Architectures: sm_80 and later. Limits, order of additions, floor: rows.cuh. The first vectors of a strip (or
//   short row) are loaded before the lanes of the previous one are joined; the results of as many short rows as a row has lanes
//   are stored together.
#pragma once
#include "reduce/kernels/strips.cuh"

namespace xgemm::reduce {

/// kRowBlocks for a kernel that loads the next row's vectors while it holds this row's state. ptxas converts all fp16 values at
/// once, before their exponentials; before sm_90 that is one register too many for three CTAs.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr int kHalfRowBlocks = 2;
#else
inline constexpr int kHalfRowBlocks = 3;
#endif
template <class Op>
inline constexpr int kRunBlocks = std::is_same_v<typename Op::T, half> && !Op::kOrdered && sizeof(typename Op::State) > 4
                                      ? kHalfRowBlocks - (Op::kTotal && kHalfRowBlocks > 2 ? 1 : 0)
                                      : kRowBlocks<Op>;

/// The same with the registers of byte shifts.
template <class Op, bool kStrips>
inline constexpr int kShiftedBlocks = [] {
  using T = typename Op::T;
  const bool more = (!kStrips && !std::is_same_v<typename Op::Extra, NoExtra>) || (Op::kFindsLater && sizeof(T) == 4) ||
                    (std::is_same_v<T, half> && sizeof(typename Op::State) > 4);
  return kRunBlocks<Op> - (more && kRunBlocks<Op> > 1 ? 1 : 0);
}();

/// Layouts of reduce_runs, whose rows are evenly spaced. Whole vectors at aligned addresses, by all lanes of a warp (warps) or
/// fewer (parts); any number of elements at any address, of one strip (shifted_rows) or several (shifted_strips; these rows may
/// lie anywhere and consist of several runs). none: any other layout.
enum class Runs : std::uint8_t { none, warps, parts, shifted_rows, shifted_strips };

template <class Op, Runs kRuns>
__global__ void __launch_bounds__(kRowThreads,
                                  kRuns < Runs::shifted_rows ? kRunBlocks<Op> : kShiftedBlocks<Op, kRuns == Runs::shifted_strips>)
    reduce_runs(const __grid_constant__ Plan plan, const typename Op::T* __restrict__ in, void* __restrict__ out,
                unsigned* counters, typename Op::State* partials) {
  using T = typename Op::T;
  using State = typename Op::State;
  constexpr int kWidth = Pack<T>::kCount;
  constexpr bool kShifted = kRuns == Runs::shifted_rows || kRuns == Runs::shifted_strips,
                 kWarp = kRuns == Runs::warps || kRuns == Runs::shifted_strips;
  extern __shared__ uint4 shared[];
  State* const states = reinterpret_cast<State*>(shared);
  __shared__ ptx::Barrier arrived;
  const Meeting<Op> meeting{&arrived};
  meeting.open(plan);
  ptx::grid_release();
  in = ptx::grid_wait(in);

  const Convert<T> convert(plan);
  const int lanes = kWarp ? kWarpSize : plan.lanes, log2_lanes = kWarp ? 5 : 31 - __clz(lanes), step = kUnroll * lanes;
  const int thread = static_cast<int>(threadIdx.x), lane = thread & (lanes - 1),
            teams = static_cast<int>(blockDim.x) >> log2_lanes;
  // If addresses matter, the short rows of a warp are eight rows apart, so that all have the same misalignment.
  const int slot = (thread % kWarpSize) >> log2_lanes, apart = kShifted ? kRowWarps : 1;
  const int team = kShifted ? slot * kRowWarps + thread / kWarpSize : thread >> log2_lanes;
  // The units of a block's work are short rows, else strips of one row.
  const bool whole = !kWarp || (kRuns == Runs::warps && plan.strips == 1);
  const auto [row, first, units] = share_of(plan, whole);
  State* const kept_states = place_of_states(plan, states, partials, row, first);
  const std::int64_t pitch = plan.kept.stride[0], unit_pitch = whole ? pitch : plan.chunk * kWidth;
  constexpr bool kAnywhere = kRuns == Runs::shifted_strips;
  IndexMap::Pair at{row * pitch, row};
  if constexpr (kAnywhere) at = plan.kept.offsets(row);
  const T* const begin_of_row = in + at.in;
  // A strip's index within its run, if a row has several runs.
  const auto piece_of = [&](int unit) {
    const std::int64_t strip = first + unit;
    return kAnywhere && plan.pieces > 0 ? strip - strip / plan.pieces * plan.pieces : strip;
  };
  const auto base_of = [&](int unit) {
    if constexpr (kAnywhere)
      if (plan.pieces > 0 && unit < units)
        return begin_of_row + plan.reduced.offset((first + unit) / plan.pieces * plan.run) + piece_of(unit) * unit_pitch;
    return begin_of_row + (first + unit) * unit_pitch;
  };
  const T* base = base_of(team);
  const auto vectors_of = [&](int unit) {
    if (unit >= units) return 0;
    return static_cast<int>(whole ? plan.full : min(plan.chunk, plan.full - piece_of(unit) * plan.chunk));
  };
  const int rest = kShifted ? static_cast<int>(plan.run % kWidth) : 0;  // elements after a run's last whole vector
  const std::int64_t last_piece = (kAnywhere && plan.pieces > 0 ? plan.pieces : plan.strips) - 1;
  const auto rest_of = [&](int unit) { return unit < units && (whole || piece_of(unit) == last_piece) ? rest : 0; };

  [[maybe_unused]] const ShiftedRows<T> shifted{lanes, lane};
  [[maybe_unused]] uint4 behind;
  uint4 raw[kUnroll];
  const auto fetch = [&](const T* p, int from, int vectors) {
    if constexpr (kShifted) return shifted.ask(p, from, vectors, raw, behind, [&] { return in + plan.last + 1; });
    p += (from + lane) * kWidth;
    if (from + step <= vectors) {
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) raw[j] = load_aligned16(p + j * lanes * kWidth);
    } else {
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) {
        raw[j] = padding<Op>(plan);
        if (from + lane + j * lanes < vectors) raw[j] = load_aligned16(p + j * lanes * kWidth);
      }
    }
  };
  typename Op::Extra extra{};  // for whole rows, of the row that this lane finishes
  if (whole ? lane == 0 && team < units : threadIdx.x == 0) extra.aim(plan, whole ? first + team : at.out);
  int vectors = vectors_of(team);
  fetch(base, 0, vectors);

  const bool joint = Op::kFindsLater && !whole, now = plan.strips <= 4;  // as in reduce_rows
  typename Op::Local s = Op::start();
  State kept = Op::identity();
  // Lanes of a warp may work on different rows; all take as many units and steps as the first.
  const int leader_gap = slot * apart;
  int finisher = 0;  // the lane of this row's result
  for (int unit = team; unit - leader_gap < units; unit += teams) {
    const int origin = joint ? unit * static_cast<int>(plan.chunk) : 0, count = whole ? static_cast<int>(plan.full) : vectors;
    if (!joint) s = Op::start();
    for (int from = 0;;) {
      if constexpr (kShifted) shifted.take(misalignment(base), from, vectors, raw, behind, padding<Op>(plan));
      push_step<Op>(convert, s, raw, (origin + from + lane) * kWidth, lanes * kWidth, vectors * kWidth, now);
      from += step;
      if (from >= count) break;
      fetch(base, from, vectors);
    }
    if constexpr (kShifted) {
      const int singles = rest_of(unit);
      for (int e = lane; e < singles; e += lanes)
        push_single<Op>(convert, s, base[vectors * kWidth + e], (origin + vectors) * kWidth, e, now);
    }
    const bool last = unit + teams - leader_gap >= units;
    if (whole && lane == finisher && unit < units) extra.template look<true>(plan, base);
    const auto advance = [&] {
      if (last) return;
      if constexpr (kAnywhere)
        base = base_of(unit + teams);
      else
        base += teams * unit_pitch;
      vectors = vectors_of(unit + teams);
      if (whole && lane == ((finisher + 1) & (lanes - 1)) && unit + teams < units) extra.aim(plan, first + unit + teams);
      fetch(base, 0, vectors);
    };
    if constexpr (!kShifted) advance();  // shifts leave no registers for the next row's vectors
    const std::int64_t start = whole ? 0 : (first + unit) * plan.chunk;
    const auto again = [&](uint4(&found)[kUnroll], std::uint32_t position) {
      const T* p = begin_of_row + (start - origin) * kWidth + position;
      const std::int64_t left = plan.full - (start - origin) - position / kWidth;  // vectors, from the first of this step on
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) {
        found[j] = padding<Op>(plan);
        if constexpr (kShifted) {
          if (j * lanes < left) found[j] = load_shifted16(p + j * lanes * kWidth);
        } else {
          if (j * lanes < left) found[j] = load_aligned16(p + j * lanes * kWidth);
        }
      }
      if constexpr (kShifted)
        if (left <= 0) found[0] = load_singles(p, rest, found[0]);
    };
    State joined = Op::identity();
    if (!joint || last) joined = Op::state(s, convert, lanes, now, (start - origin) * kWidth, again);
    if constexpr (kShifted) advance();
    if (!whole) {
      if (lane == 0) kept_states[unit] = joined;
      continue;
    }
    if constexpr (Op::kFindsLater) {  // only an index to store, and no register to keep it in
      if (lane == 0 && unit < units) Op::finish(plan, convert, joined, extra, out, first + unit);
      continue;
    }
    if (lane == finisher) kept = joined;
    if (++finisher < lanes && !last) continue;
    const int mine = unit - (finisher - 1 - lane) * teams;
    if (lane < finisher && mine < units) Op::finish(plan, convert, kept, extra, out, first + mine);
    finisher = 0;
  }
  if constexpr (kWarp) {
    if (whole) return;
    if (threadIdx.x == 0) extra.template look<true>(plan, begin_of_row);
    finish_row<Op>(plan, convert, units, row, states, extra, out, at.out, counters, partials, meeting);
  }
}

}  // namespace xgemm::reduce
