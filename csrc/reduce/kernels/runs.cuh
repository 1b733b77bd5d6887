// Reduces evenly spaced rows of stride 1, in the order of reduce_rows but without the code for other layouts, which would take
// most of a short row's issue slots.
//
// Layouts: `Runs`. Architectures: sm_80 and later. Limits, order of additions, floor: rows.cuh. The first vectors of a split (or
//   short row) are loaded before the lanes of the previous one are joined; the results of as many short rows as a row has lanes
//   are stored together.
#pragma once
#include "reduce/kernels/row_splits.cuh"

namespace xgemm::reduce {

/// Layouts of reduce_runs, whose rows are evenly spaced: whole vectors at multiples of 16 bytes (few_lanes: less than a warp
/// shares a row), or any number of elements at any address, of one split (shifted_rows) or several (shifted_splits; these rows
/// may lie anywhere and consist of several runs). none: any other layout.
enum class Runs : std::uint8_t { none, aligned, few_lanes, shifted_rows, shifted_splits };

template <Runs kRuns>
inline constexpr bool kIsShifted = kRuns == Runs::shifted_rows || kRuns == Runs::shifted_splits;

/// Other operators read few lanes' rows in the kernel for aligned rows, nearly as fast.
template <class Op>
inline constexpr bool kHasFewLanes = Op::kFindsLater;

/// Other operators' shifted splits are as fast in reduce_rows.
template <class Op>
inline constexpr bool kHasShiftedSplits = std::is_same_v<typename Op::Extra, NoExtra> && !Op::kFindsLater;

/// kRowBlocks, or fewer, as a thread holds the next row's vectors: ptxas converts all fp16 values before their exponentials.
template <class Op, Runs kRuns>
inline constexpr int kRunBlocks = [] {
  using T = typename Op::T;
  const bool large_of_half = std::is_same_v<T, half> && sizeof(typename Op::State) > 4;
  const int aligned = kRowBlocks<Op> - (large_of_half && !Op::kOrdered ? 1 : 0);
  // Byte shifts take registers too.
  const bool more = !std::is_same_v<typename Op::Extra, NoExtra> || large_of_half || (Op::kFindsLater && sizeof(T) == 4);
  return kRuns == Runs::shifted_rows && more ? aligned - 1 : aligned;
}();

/// Where the items of a CTA lie: short rows (`whole`), or splits of one row.
template <class T, Runs kRuns>
struct RunItems {
  static constexpr int kWidth = Pack<T>::kCount;
  const RowPlan& plan;
  const T* begin_of_row;
  std::int64_t first, pitch;  ///< of this CTA's items; elements between two items of a run
  int items;
  bool whole;

  __device__ __forceinline__ bool several_runs() const { return kRuns == Runs::shifted_splits && plan.splits_per_run > 0; }
  /// A split's index within its run.
  __device__ __forceinline__ std::int64_t in_run(int item) const {
    const std::int64_t split = first + item;
    return several_runs() ? split - split / plan.splits_per_run * plan.splits_per_run : split;
  }
  __device__ __forceinline__ const T* base(int item) const {
    if (several_runs() && item < items)
      return begin_of_row + plan.reduced.offset((first + item) / plan.splits_per_run * plan.run) + in_run(item) * pitch;
    return begin_of_row + (first + item) * pitch;
  }
  /// Its whole vectors.
  __device__ __forceinline__ int vectors(int item) const {
    if (item >= items) return 0;
    return static_cast<int>(whole ? plan.full : min(plan.split_vectors, plan.full - in_run(item) * plan.split_vectors));
  }
  /// Elements of a run after its last whole vector.
  __device__ __forceinline__ int rest() const { return kIsShifted<kRuns> ? static_cast<int>(plan.run % kWidth) : 0; }
  __device__ __forceinline__ int rest(int item) const {
    const std::int64_t last = (several_runs() ? plan.splits_per_run : plan.splits) - 1;
    return item < items && (whole || in_run(item) == last) ? rest() : 0;
  }
};

template <class Op, Runs kRuns>
__global__ void __launch_bounds__(kRowThreads, (kRunBlocks<Op, kRuns>))
    reduce_runs(const __grid_constant__ RowPlan plan, const typename Op::T* __restrict__ in, void* __restrict__ out,
                unsigned* counters, typename Op::State* partials) {
  using T = typename Op::T;
  using State = typename Op::State;
  constexpr int kWidth = Pack<T>::kCount;
  constexpr bool kShifted = kIsShifted<kRuns>, kSplits = kRuns == Runs::aligned || kRuns == Runs::shifted_splits;
  constexpr bool kWarp = kRuns == Runs::shifted_splits || (kRuns == Runs::aligned && kHasFewLanes<Op>);  // all of its lanes
  extern __shared__ uint4 shared[];
  State* const states = reinterpret_cast<State*>(shared);
  __shared__ ptx::Barrier arrived;
  const ClusterJoin<Op> cluster{&arrived};
  cluster.open(plan);
  ptx::grid_release();
  in = ptx::grid_wait(in);

  const Convert<T> convert(plan);
  const int lanes = kWarp ? kWarpSize : plan.lanes, log2_lanes = 31 - __clz(lanes), step = kUnroll * lanes;
  const int thread = static_cast<int>(threadIdx.x), lane = thread & (lanes - 1),
            teams = static_cast<int>(blockDim.x) >> log2_lanes;
  // If addresses matter, the short rows of a warp are eight rows apart, so that all have the same misalignment.
  const int in_warp = (thread % kWarpSize) >> log2_lanes, apart = kShifted ? kRowWarps : 1;
  const int team = kShifted ? in_warp * kRowWarps + thread / kWarpSize : thread >> log2_lanes;
  const bool whole = !kSplits || (kRuns == Runs::aligned && plan.splits == 1);
  const auto [row, first, items] = work_of_cta(plan, whole);
  State* const kept_states = place_of_states(plan, states, partials, row, first);
  const std::int64_t row_pitch = plan.kept.stride[0], pitch = whole ? row_pitch : plan.split_vectors * kWidth;
  IndexMap::Pair at{row * row_pitch, row};
  if constexpr (kRuns == Runs::shifted_splits) at = plan.kept.offsets(row);
  const RunItems<T, kRuns> run{plan, in + at.in, first, pitch, items, whole};
  const T* base = run.base(team);

  [[maybe_unused]] const ShiftedRows<T> shifted{lanes, lane};
  [[maybe_unused]] uint4 behind;
  uint4 raw[kUnroll];
  const auto fetch = [&](const T* p, int from, int vectors) {
    if constexpr (kShifted)
      shifted.ask(p, from, vectors, raw, behind, [&] { return in + plan.last + 1; });
    else
      load_aligned_step<Op>(plan, raw, p + (from + lane) * kWidth, from + lane, lanes, vectors, from + step <= vectors);
  };
  typename Op::Extra extra{};  // for whole rows, of the row that this lane finishes
  if (whole ? lane == 0 && team < items : threadIdx.x == 0) extra.aim(plan, whole ? first + team : at.out);
  int vectors = run.vectors(team);
  fetch(base, 0, vectors);

  const bool joint = Op::kFindsLater && !whole, now = plan.splits <= 4;  // as in reduce_rows
  typename Op::Local s = Op::start();
  State kept = Op::identity();
  // Lanes of a warp may work on different rows; all take as many items and steps as the first.
  const int leader_gap = in_warp * apart;
  int finisher = 0;  // the lane of this row's result
  for (int item = team; item - leader_gap < items; item += teams) {
    const int origin = joint ? item * static_cast<int>(plan.split_vectors) : 0,
              count = whole ? static_cast<int>(plan.full) : vectors;
    if (!joint) s = Op::start();
    for (int from = 0;;) {
      if constexpr (kShifted) shifted.take(misalignment(base), from, vectors, raw, behind, padding<Op>(plan));
      push_step<Op>(convert, s, raw, (origin + from + lane) * kWidth, lanes * kWidth, now);
      from += step;
      if (from >= count) break;
      fetch(base, from, vectors);
    }
    if constexpr (kShifted) {
      const int singles = run.rest(item);
      for (int e = lane; e < singles; e += lanes)
        push_single<Op>(convert, s, base[vectors * kWidth + e], (origin + vectors) * kWidth, e, now);
    }
    const bool last = item + teams - leader_gap >= items;
    if (whole && lane == finisher && item < items) extra.template look<true>(plan, base);
    const auto advance = [&] {
      if (last) return;
      if (run.several_runs())
        base = run.base(item + teams);
      else
        base += teams * pitch;
      vectors = run.vectors(item + teams);
      if (whole && lane == ((finisher + 1) & (lanes - 1)) && item + teams < items) extra.aim(plan, first + item + teams);
      fetch(base, 0, vectors);
    };
    if constexpr (!kShifted) advance();  // shifts leave no registers for the next row's vectors
    const std::int64_t start = whole ? 0 : (first + item) * plan.split_vectors;
    const auto again = [&](uint4(&found)[kUnroll], std::uint32_t position) {
      const T* p = run.begin_of_row + (start - origin) * kWidth + position;
      const std::int64_t left = plan.full - (start - origin) - position / kWidth;  // vectors, from the first of this step on
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) {
        found[j] = padding<Op>(plan);
        if (j * lanes < left)
          found[j] = kShifted ? load_shifted16(p + j * lanes * kWidth) : load_aligned16(p + j * lanes * kWidth);
      }
      if constexpr (kShifted)
        if (left <= 0) found[0] = load_singles(p, run.rest(), found[0]);
    };
    State joined = Op::identity();
    if (!joint || last) joined = Op::state(s, convert, lanes, now, (start - origin) * kWidth, again);
    if constexpr (kShifted) advance();
    if (!whole) {
      if (lane == 0) kept_states[item] = joined;
      continue;
    }
    if constexpr (Op::kFindsLater) {  // only an index to store, and no register to keep it in
      if (lane == 0 && item < items) Op::finish(plan, convert, joined, extra, out, first + item);
      continue;
    }
    if (lane == finisher) kept = joined;
    if (++finisher < lanes && !last) continue;
    const int mine = item - (finisher - 1 - lane) * teams;
    if (lane < finisher && mine < items) Op::finish(plan, convert, kept, extra, out, first + mine);
    finisher = 0;
  }
  if constexpr (kSplits) {
    if (whole) return;
    if (threadIdx.x == 0) extra.template look<true>(plan, run.begin_of_row);
    finish_row<Op>(plan, convert, items, row, states, extra, out, at.out, counters, partials, cluster);
  }
}

}  // namespace xgemm::reduce
