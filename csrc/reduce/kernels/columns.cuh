// Reduces a dim that is not the fastest: a block takes a tile of neighbouring columns, `lanes` threads of 16 bytes side by side
// and threads / lanes positions at a time; the last of `split` blocks of a tile adds their partial results in order.
//
// Layouts: any strides. With plan.vector neighbouring columns have stride 1 and are read 16 bytes at a time at any alignment,
// each
//   aligned block once; else element by element. Who holds which element, and so the order, does not follow from the alignment.
// Architectures: sm_80 and later. Limits: none but IndexMap's dims; 64-bit positions.
// Floor: every element read once; a tile's partial results are 1 / (8 .. 128 steps) of that.
#pragma once
#include "reduce/kernels/common.cuh"

namespace xgemm::reduce {

template <class Op>
inline constexpr int kColumnThreads = column_threads(sizeof(typename Op::State), Pack<typename Op::T>::kCount);

/// Steps of kUnroll 16-byte loads that a thread has under way: two where its states take few registers.
template <class Op>
inline constexpr int kColumnSteps = sizeof(typename Op::State) == 4 && sizeof(typename Op::T) > 1 ? 2 : 1;

/// Blocks an SM that the register budget must allow: 1024 threads, fewer where a thread's states alone take more than that
/// leaves.
template <class Op>
inline constexpr int kColumnBlocks = [] {
  constexpr int kWidth = Pack<typename Op::T>::kCount, kBytes = static_cast<int>(sizeof(typename Op::State)) * kWidth;
  constexpr int kThreads = kBytes > 128 || (Op::kTotal && std::is_same_v<typename Op::V, double>)    ? 256
                           : kBytes == 128 || kWidth == 16 || std::is_same_v<typename Op::V, double> ? 512
                                                                                                     : 1024;
  return kThreads / kColumnThreads<Op>;
}();

/// The states of a thread's columns, and in a shared array those of a tile's columns for each of the groups that hold them.
template <class Op>
struct ColumnStates {
  using State = typename Op::State;
  static constexpr int kWidth = Pack<typename Op::T>::kCount, kThreads = kColumnThreads<Op>;
  State s[kWidth];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int e = 0; e < kWidth; ++e) s[e] = Op::identity();
  }
  /// Joins the states of the threads that share a column: f(column of the tile, state) for each column, in one of the threads.
  template <class F>
  __device__ __forceinline__ void join(int lanes, State* shared, const F& f) {
    const int thread = static_cast<int>(threadIdx.x), columns = lanes * kWidth, together = max(lanes, kWarpSize);
    const int group = thread / kWarpSize * kWarpSize >> (31 - __clz(together)), groups = kThreads >> (31 - __clz(together));
#pragma unroll
    for (int e = 0; e < kWidth; ++e)
      for (int offset = kWarpSize / 2; offset >= lanes; offset /= 2) s[e] = Op::merge(s[e], Op::shuffle(s[e], offset));
    __syncthreads();  // `shared` may still be read from the call before
    if ((thread & (together - 1)) < lanes) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) shared[group * columns + (thread & (lanes - 1)) * kWidth + e] = s[e];
    }
    __syncthreads();
    for (int c = thread; c < columns; c += kThreads) {
      State sum = Op::identity();
#pragma unroll 8
      for (int g = 0; g < groups; ++g) sum = Op::merge(sum, shared[g * columns + c]);
      f(c, sum);
    }
  }
};

template <class Op>
__global__ void __launch_bounds__(kColumnThreads<Op>, kColumnBlocks<Op>)
    reduce_columns(const __grid_constant__ Plan plan, const typename Op::T* __restrict__ in, void* __restrict__ out,
                   unsigned* counters, typename Op::State* partials) {
  using T = typename Op::T;
  using V = typename Op::V;
  using State = typename Op::State;
  constexpr int kWidth = Pack<T>::kCount, kThreads = kColumnThreads<Op>, kSteps = kColumnSteps<Op>;
  constexpr int kMaxLanes = kWidth == 16 ? 16 : kWarpSize;
  __shared__ State shared[kThreads / kWarpSize * kMaxLanes * kWidth];

  const Convert<T> convert(plan);
  const int lanes = plan.lanes, lane = static_cast<int>(threadIdx.x) & (lanes - 1), log2_lanes = 31 - __clz(lanes);
  const int first = static_cast<int>(threadIdx.x) >> log2_lanes, rows = kThreads >> log2_lanes, columns = lanes * kWidth;
  // Neighbouring blocks read neighbouring tiles of the same positions.
  std::int64_t group = blockIdx.x / static_cast<unsigned>(plan.tiles);
  const std::int64_t tile = blockIdx.x - group * plan.tiles, outer = group / plan.split, part = group - outer * plan.split;
  const IndexMap::Pair at = plan.kept.offsets(outer);
  const std::int64_t column = (tile * lanes + lane) * kWidth;
  const T* base = in + at.in + column * plan.column_stride;
  asm("" : "+l"(base));  // in registers of its own: computed again from `in`, cross_entropy of 16 bits spills
  const bool exists = column < plan.columns, straight = plan.reduced.dims == 1;
  const bool plain = straight && plan.vector && plan.aligned && plan.columns % kWidth == 0 && misalignment(in + at.in) == 0;

  const std::int64_t end = min((part + 1) * plan.chunk, plan.length);
  ColumnStates<Op> states;
  states.clear();
  const int distance = kUnroll * rows;  // of a step
  const auto add = [&](const uint4(&raw)[kUnroll], std::int64_t n) {
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      V x[kUnroll];
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) x[j] = convert.template operator()<Op::kOrdered>(as_pack<T>(raw[j]).values[e]);
      push<Op>(
          plan, states.s[e], x, maximum_of(x), [&](int j) { return n + j * rows; }, [&](int j) { return n + j * rows < end; });
    }
  };
  std::int64_t n = part * plan.chunk + first;
  const std::int64_t stride = plan.reduced.stride[0];
  const T* p = base + n * stride;
  if (plain) {
    if (exists) {
      for (; n < end; n += kSteps * distance, p += kSteps * distance * stride) {
        uint4 raw[kSteps][kUnroll];
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
#pragma unroll
          for (int j = 0; j < kUnroll; ++j) {
            const int k = (i * kUnroll + j) * rows;
            raw[i][j] = padding<Op>(plan);
            if (n + k < end) raw[i][j] = load_aligned16(p + k * stride);
          }
        }
#pragma unroll
        for (int i = 0; i < kSteps; ++i) add(raw[i], n + i * distance);
      }
    }
  } else if (exists) {
    const T* const last = in + plan.last + 1;
    for (; n < end; n += distance) {
      std::int64_t offset[kUnroll];
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) offset[j] = (n + j * rows) * stride;
      if (!straight) {
#pragma unroll 1
        for (int i = 0; i < kUnroll; ++i) {  // one copy of the map's code: the offsets move up
#pragma unroll
          for (int j = 1; j < kUnroll; ++j) offset[j - 1] = offset[j];
          offset[kUnroll - 1] = plan.reduced.offset(n + i * rows);
        }
      }
      // A vector as the two aligned blocks that it lies in, as long as the second does not reach behind the tensor (bytes take
      // too many registers).
      bool blocks = sizeof(T) > 1 && plan.vector && column + kWidth <= plan.columns && n + (kUnroll - 1) * rows < end;
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) blocks = blocks && base + offset[j] + 2 * kWidth <= last;
      uint4 raw[kUnroll];
      if (blocks) {
        uint4 behind[kUnroll];
#pragma unroll
        for (int j = 0; j < kUnroll; ++j) {
          const char* const from = reinterpret_cast<const char*>(base + offset[j]);
          raw[j] = load_aligned16(from - misalignment(from));
          behind[j] = load_aligned16(from - misalignment(from) + 16);
        }
#pragma unroll
        for (int j = 0; j < kUnroll; ++j) raw[j] = shift_bytes(raw[j], behind[j], misalignment(base + offset[j]));
      } else {
#pragma unroll
        for (int j = 0; j < kUnroll; ++j) {
          raw[j] = padding<Op>(plan);
          if (n + j * rows >= end) continue;
          const T* const from = base + offset[j];
          if (plan.vector && column + kWidth <= plan.columns) {
            raw[j] = load_shifted16(from);
          } else {
            Pack<T> pack = as_pack<T>(raw[j]);
#pragma unroll
            for (int e = 0; e < kWidth; ++e)
              if (column + e < plan.columns) pack.values[e] = from[e * plan.column_stride];
            raw[j] = as_raw(pack);
          }
        }
      }
      add(raw, n);
    }
  }

  const auto finish = [&](int c, const State& sum) {
    const std::int64_t to_column = tile * columns + c;
    if (to_column >= plan.columns) return;
    const std::int64_t to = at.out + to_column * plan.column_out;
    typename Op::Extra extra{};
    extra.aim(plan, to);
    extra.template look<false>(plan, in + at.in + to_column * plan.column_stride);
    Op::finish(plan, convert, sum, extra, out, to);
  };
  if (plan.split == 1) return states.join(lanes, shared, finish);

  State* const mine = partials + (outer * plan.tiles + tile) * plan.split * columns;
  states.join(lanes, shared, [&](int c, const State& sum) { mine[part * columns + c] = sum; });
  if (!is_last_block(counters + outer * plan.tiles + tile, plan.split)) return;
  states.clear();
#pragma unroll 4
  for (std::int64_t i = first; i < plan.split; i += rows) {
    const State* const other = mine + i * columns + lane * kWidth;
#pragma unroll
    for (int e = 0; e < kWidth; ++e) states.s[e] = Op::merge(states.s[e], load_state(other + e));
  }
  states.join(lanes, shared, finish);
}

}  // namespace xgemm::reduce
