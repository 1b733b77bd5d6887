// Reduces a dim that is not the fastest: a block takes a tile of neighbouring columns, `lanes` threads of 16 bytes side by side
// and 256 / lanes positions at a time; the last of `split` blocks of a tile adds their partial results in order.
//
// Layouts: any strides. With plan.vector neighbouring columns have stride 1 and are read 16 bytes at a time at any alignment (but
//   for the incomplete last vector of a tile row); else element by element.
// Architectures: sm_80 and later. Limits: none but IndexMap's dims; 64-bit positions.
// Floor: every element read once; a tile's partial results are 1 / (8 .. 64 steps) of that.
#pragma once
#include "reduce/kernels/common.cuh"

namespace xgemm::reduce {

inline constexpr int kColumnThreads = 256, kColumnWarps = kColumnThreads / kWarpSize;

/// Blocks an SM that the register budget must allow: four, fewer where a thread's states alone take more than that leaves.
template <class Op>
inline constexpr int kColumnBlocks = [] {
  constexpr int kWidth = Pack<typename Op::T>::kCount, kBytes = static_cast<int>(sizeof(typename Op::State)) * kWidth;
  return kBytes > 128 || (Op::kTotal && std::is_same_v<typename Op::V, double>)    ? 1
         : kBytes == 128 || kWidth == 16 || std::is_same_v<typename Op::V, double> ? 2
                                                                                   : 4;
}();

/// Joins the states of the threads that share a column; thread c gets that of the tile's column c.
template <class Op>
__device__ __forceinline__ typename Op::State join_columns(typename Op::State (&s)[Pack<typename Op::T>::kCount], int lanes,
                                                           typename Op::State* shared) {
  using State = typename Op::State;
  constexpr int kWidth = Pack<typename Op::T>::kCount;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int columns = lanes * kWidth;
#pragma unroll
  for (int e = 0; e < kWidth; ++e)
    for (int offset = kWarpSize / 2; offset >= lanes; offset /= 2) s[e] = Op::merge(s[e], Op::shuffle(s[e], offset));
  __syncthreads();  // `shared` may still be read from the call before
  if (lane < lanes) {
#pragma unroll
    for (int e = 0; e < kWidth; ++e) shared[warp * columns + lane * kWidth + e] = s[e];
  }
  __syncthreads();
  State sum = Op::identity();
  if (static_cast<int>(threadIdx.x) < columns) {
#pragma unroll
    for (int w = 0; w < kColumnWarps; ++w) sum = Op::merge(sum, shared[w * columns + static_cast<int>(threadIdx.x)]);
  }
  return sum;
}

template <class Op>
__global__ void __launch_bounds__(kColumnThreads, kColumnBlocks<Op>)
    reduce_columns(const __grid_constant__ Plan plan, const typename Op::T* __restrict__ in, void* __restrict__ out,
                   unsigned* counters, typename Op::State* partials) {
  using T = typename Op::T;
  using V = typename Op::V;
  using State = typename Op::State;
  constexpr int kWidth = Pack<T>::kCount, kMaxLanes = kWidth == 16 ? 16 : kWarpSize;
  __shared__ State shared[kColumnWarps * kMaxLanes * kWidth];

  const Convert<T> convert(plan);
  const int lanes = plan.lanes, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int first = static_cast<int>(threadIdx.x) / lanes, rows = kColumnThreads / lanes, columns = lanes * kWidth;
  // Neighbouring blocks read neighbouring tiles of the same positions.
  std::int64_t group = blockIdx.x / static_cast<unsigned>(plan.tiles);
  const std::int64_t tile = blockIdx.x - group * plan.tiles, outer = group / plan.split, part = group - outer * plan.split;
  const IndexMap::Pair at = plan.kept.offsets(outer);
  const std::int64_t column = (tile * lanes + lane) * kWidth;
  const T* base = in + at.in + column * plan.column_stride;

  State s[kWidth];
#pragma unroll
  for (int e = 0; e < kWidth; ++e) s[e] = Op::identity();
  std::int64_t n = part * plan.chunk + first;
  const std::int64_t end = min((part + 1) * plan.chunk, plan.length);
  if (plan.vector && column + kWidth <= plan.columns) {
    const bool aligned = plan.aligned && misalignment(base) == 0;
    for (; n < end; n += kUnroll * rows) {
      uint4 raw[kUnroll];
      std::int64_t offset[kUnroll];
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) offset[j] = plan.reduced.offset(n + j * rows);
      if (aligned) {
#pragma unroll
        for (int j = 0; j < kUnroll; ++j) {
          raw[j] = padding<Op>(plan);
          if (n + j * rows < end) raw[j] = load_aligned16(base + offset[j]);
        }
      } else {
#pragma unroll
        for (int j = 0; j < kUnroll; ++j) {
          raw[j] = padding<Op>(plan);
          if (n + j * rows < end) raw[j] = load_shifted16(base + offset[j]);
        }
      }
      Pack<T> packs[kUnroll];
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) packs[j] = as_pack<T>(raw[j]);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        V x[kUnroll];
#pragma unroll
        for (int j = 0; j < kUnroll; ++j) x[j] = convert.template operator()<Op::kOrdered>(packs[j].values[e]);
        push<Op>(plan, s[e], x, maximum_of(x), [&](int j) { return n + j * rows; }, [&](int j) { return n + j * rows < end; });
      }
    }
  } else if (column < plan.columns) {
    for (; n < end; n += rows) {
      const T* p = base + plan.reduced.offset(n);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        if (column + e < plan.columns) {
          const V x[1] = { convert.template operator()<Op::kOrdered>(p[e * plan.column_stride]) };
          push<Op>(plan, s[e], x, x[0], [&](int) { return n; }, [](int) { return true; });
        }
      }
    }
  }

  State sum = join_columns<Op>(s, lanes, shared);
  if (plan.split > 1) {
    State* mine = partials + (outer * plan.tiles + tile) * plan.split * columns;
    if (static_cast<int>(threadIdx.x) < columns) mine[part * columns + threadIdx.x] = sum;
    if (!is_last_block(counters + outer * plan.tiles + tile, plan.split)) return;
#pragma unroll
    for (int e = 0; e < kWidth; ++e) s[e] = Op::identity();
#pragma unroll 4
    for (std::int64_t i = first; i < plan.split; i += rows) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) s[e] = Op::merge(s[e], load_state(mine + i * columns + lane * kWidth + e));
    }
    sum = join_columns<Op>(s, lanes, shared);
  }
  const std::int64_t c = tile * columns + threadIdx.x;
  if (static_cast<int>(threadIdx.x) < columns && c < plan.columns) {
    const std::int64_t to = at.out + c * plan.column_out;
    typename Op::Extra extra{};
    extra.aim(plan, to);
    extra.template look<false>(plan, in + at.in + c * plan.column_stride);
    Op::finish(plan, convert, sum, extra, out, to);
  }
}

}  // namespace xgemm::reduce
