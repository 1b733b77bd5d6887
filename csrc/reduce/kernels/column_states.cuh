// Joins the states of columns.cuh's threads: of a tile's columns within a CTA, of the columns of one output, of a tile's splits.
#pragma once
#include "reduce/kernels/common.cuh"

namespace xgemm::reduce {

template <class Op>
inline constexpr int kColumnThreads = column_threads(sizeof(Part<Op>), Pack<typename Op::T>::kCount);

/// Parts or states of a thread's columns; `shared` has those of a tile's columns for each group of threads that holds them.
template <class Op, class S>
struct ColumnStates {
  static constexpr int kWidth = Pack<typename Op::T>::kCount, kThreads = kColumnThreads<Op>;
  static constexpr int kAhead = sizeof(S) > 8 ? 1 : 4;
  alignas(16) S s[kWidth];

  __device__ __forceinline__ static S start(int position) {
    if constexpr (std::is_same_v<S, typename Op::State>)
      return Op::identity();
    else
      return Op::start_part(position);
  }
  __device__ __forceinline__ void clear(int position) {
#pragma unroll
    for (int e = 0; e < kWidth; ++e) s[e] = start(position);
  }
  /// Joins the states of the threads that share a column and calls f(column of the tile, state) for each of `columns` in one of
  /// these threads. With a `shift`, a thread's first state belongs to the column `shift` before its own; then the positions of
  /// a warp are joined in shared memory, in the order of the shuffles.
  template <class F>
  __device__ __forceinline__ void join(int lanes, int columns, int shift, S* shared, const F& f) {
    const int thread = static_cast<int>(threadIdx.x), log2_lanes = 31 - __clz(lanes);
    const int in_warp = max(kWarpSize >> log2_lanes, 1), groups = (kThreads >> log2_lanes) / in_warp;
    const bool moved = columns < lanes * kWidth;
    if (!moved) {
#pragma unroll 1
      for (int offset = kWarpSize / 2; offset >= lanes; offset /= 2) {
#pragma unroll
        for (int e = 0; e < kWidth; ++e) s[e] = Op::merge(s[e], Op::shuffle(s[e], offset));
      }
    }
    __syncthreads();  // the previous call may still read `shared`
    S* const to = shared + (thread >> log2_lanes) * columns;
    const int own = (thread & (lanes - 1)) * kWidth;
    if (moved) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e)
        if (static_cast<unsigned>(own - shift + e) < static_cast<unsigned>(columns)) to[own - shift + e] = s[e];
    } else if ((thread >> log2_lanes) % in_warp == 0) {  // 16 bytes at a time: neighbouring lanes' single states share a bank
      uint4 raw[sizeof(s) / 16];
      __builtin_memcpy(raw, s, sizeof(s));
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof(s) / 16); ++i) reinterpret_cast<uint4*>(to + own)[i] = raw[i];
    }
    __syncthreads();
#pragma unroll 1
    for (int half = moved ? in_warp / 2 : 0; half > 0; half /= 2) {
#pragma unroll 1
      for (int i = thread; i < groups * half * columns; i += kThreads) {
        const int pair = i / columns, column = i - pair * columns, group = pair / half;
        S* const sum = shared + (group * in_warp + pair - group * half) * columns + column;
        *sum = Op::merge(*sum, sum[half * columns]);
      }
      __syncthreads();
    }
#pragma unroll 1
    for (int c = thread; c < columns; c += kThreads) {
      S sum = start(-1);
#pragma unroll kAhead
      for (int g = 0; g < groups; ++g) sum = Op::merge(sum, shared[g * in_warp * columns + c]);
      f(c, sum);
    }
  }
};

/// Joins the columns of each of a folded tile's outputs and calls f(output, state); an output is run * repeat columns.
/// of(v, position): the state of column v, which is `position` positions from the first of those side by side.
template <class Op, class Of, class F>
__device__ __forceinline__ void fold_columns(const ColumnPlan& plan, const Of& of, const F& f) {
  using State = typename Op::State;
  const int lanes = plan.fold_lanes, log2_lanes = 31 - __clz(lanes), lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int run = static_cast<int>(plan.run), pitch = plan.tile / plan.repeat, teams = kColumnThreads<Op> >> log2_lanes;
#pragma unroll 1
  for (int first = 0; first < plan.results; first += teams) {
    const int output = first + (static_cast<int>(threadIdx.x) >> log2_lanes);
    State s = Op::identity();
#pragma unroll 1
    for (int i = lane; output < plan.outputs_of_tile && i < run * plan.repeat; i += lanes) {
      const int position = i / run;
      s = Op::merge(s, of(position * pitch + output * run + i - position * run, position));
    }
#pragma unroll 1
    for (int offset = lanes / 2; offset > 0; offset /= 2) s = Op::merge(s, Op::shuffle(s, offset));
    if (lane == 0 && output < plan.results) f(output, s);
  }
}

/// Joins the states of a tile's splits in order: `of_tile` holds those of split 0, then those of split 1, ...
template <class Op, class F>
__device__ __forceinline__ void join_column_splits(const ColumnPlan& plan, const typename Op::State* of_tile,
                                                   typename Op::State* shared, const F& finish) {
  using State = typename Op::State;
  constexpr int kWidth = Pack<typename Op::T>::kCount, kThreads = kColumnThreads<Op>;
  constexpr int kStatesAhead = sizeof(State) > 4 ? 2 : 4;  // as registers allow
  const int lanes = plan.result_lanes, log2_lanes = 31 - __clz(lanes), lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  ColumnStates<Op, State> states;
  states.clear(0);
  if (lane * kWidth < plan.results) {
#pragma unroll kStatesAhead
    for (std::int64_t i = static_cast<int>(threadIdx.x) >> log2_lanes; i < plan.splits; i += kThreads >> log2_lanes) {
      const State* const other = of_tile + i * plan.results + lane * kWidth;
#pragma unroll
      for (int e = 0; e < kWidth; ++e) states.s[e] = Op::merge(states.s[e], load_state(other + e));
    }
  }
  states.join(lanes, plan.results, 0, shared, finish);
}

}  // namespace xgemm::reduce
