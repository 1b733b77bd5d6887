// Merges the splits of the keys: a kernel of its own, after the one that wrote them (splits.cuh).
//
//   Operands   TileArguments::partial_states and partial_outputs of all splits of a row, which has `partial_columns` outputs.
//   CTA        four warps, one row each. Its first instructions run while the previous kernel ends (programmatic dependent
//              launch).
//   Order      split by split, from the first one that some row sees, each relative to the maximum so far (MergedSplits): one
//              CTA that computes all splits in turn gets the same bits (mma/merge.cuh).
//   Floor      reads 4 partial_columns + 8 bytes per row and split.
#pragma once
#include "attention/tiles/finish.cuh"
#include "attention/tiles/sequences.cuh"
#include "attention/tiles/splits.cuh"
#include "device/ptx/grid.cuh"

namespace xgemm::attention {

inline constexpr int kMergeWarps = 4, kLoadsTogether = 8;
static_assert(32 % kLoadsTogether == 0, "of the splits whose factors a warp has");

/// Results of splits that are merged one after another, at four columns of a row. `before` and `now`: the factors of the sums
/// so far and of the split's, for the new maximum.
struct MergedSplits {
  float sum = 0;
  Vector<float, 4> output = {};
  __device__ __forceinline__ void add(float before, float now, float split_sum, const Vector<float, 4>& split_output) {
    sum = fmaf(split_sum, now, __fmul_rn(sum, before));
#pragma unroll
    for (int c = 0; c < 4; ++c) output[c] = fmaf(split_output[c], now, __fmul_rn(output[c], before));
  }
};

/// Merges the warp's row: calls store(tile, row, column, maximum, sum, outputs) for four columns at a time. `factors(tile, row)`
/// returns a function from an earlier maximum and the new one to the factor of sums relative to the earlier one.
template <class RowTile, class Arguments, class Factors, class Store>
__device__ __forceinline__ void merge_row(const Arguments& g, const Factors& factors, const Store& store) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kMergeWarps + threadIdx.x / 32;
  const int tile_index = static_cast<int>(index / g.partial_rows), row = static_cast<int>(index % g.partial_rows);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (tile_index >= g.items / static_cast<int>(g.splits.divisor)) return;
  const RowTile tile(g, tile_index * static_cast<int>(g.splits.divisor));
  if (!tile.merges()) return;
  const int splits = tile.splits(g), row_step = tile.partial_step(g);
  const std::int64_t out = tile.output_row(g, tile.row + row), first_place = tile.partial_row(g, row);
  if (out < 0) return;

  const float2* const states = g.partial_states + first_place;
  const std::int64_t step = std::int64_t{row_step} * g.partial_columns;  // from a split's outputs to the next's
  Vector<float, 4> values[kLoadsTogether];
  const auto load = [&](int split, int column) {
    const float* const from =
        g.partial_outputs + first_place * g.partial_columns + split * step + min(column, g.partial_columns - 4);
#pragma unroll
    for (int i = 0; i < kLoadsTogether; ++i) {
      if (split + i >= splits) continue;
      const float4 loaded = __ldcg(reinterpret_cast<const float4*>(from + i * step));
      values[i] = {{loaded.x, loaded.y, loaded.z, loaded.w}};
    }
  };

  const float2 mine = lane < splits ? __ldcg(states + lane * row_step) : float2{-INFINITY, 0.f};
  load(0, 4 * lane);  // before the factors, on which no address depends
  const auto factor_of = factors(tile, row);

#pragma unroll 1
  for (int column = 4 * lane; column - 4 * lane < g.partial_columns; column += 128) {
    MergedSplits merged;
    float maximum = -INFINITY;
#pragma unroll 1
    for (int first = 0; first < splits; first += 32) {
      float2 state = mine;
      if (first > 0) state = first + lane < splits ? __ldcg(states + (first + lane) * row_step) : float2{-INFINITY, 0.f};
      float largest = fmaxf(maximum, state.x);  // of the splits up to this lane's
#pragma unroll
      for (int offset = 1; offset < 32; offset *= 2) {
        const float earlier = __shfl_up_sync(kFullWarp, largest, offset);
        if (lane >= offset) largest = fmaxf(largest, earlier);
      }
      const float earlier = __shfl_up_sync(kFullWarp, largest, 1);
      const float before = factor_of(lane == 0 ? maximum : earlier, largest), now = factor_of(state.x, largest);
      maximum = __shfl_sync(kFullWarp, largest, 31);
#pragma unroll 1
      for (int split = first; split < min(first + 32, splits); split += kLoadsTogether) {
        if (split > 0 || column >= 128) load(split, column);
#pragma unroll
        for (int i = 0; i < kLoadsTogether; ++i) {
          const int from = split - first + i;
          const float b = __shfl_sync(kFullWarp, before, from), n = __shfl_sync(kFullWarp, now, from),
                      sum = __shfl_sync(kFullWarp, state.y, from);
          if (split + i < splits) merged.add(b, n, sum, values[i]);
        }
      }
    }
    if (column < g.partial_columns) store(tile, row, out, column, maximum, merged.sum, merged.output);
  }
}

template <class Element, Masking kMasking>
__global__ void __launch_bounds__(32 * kMergeWarps) merge_splits(const __grid_constant__ ArgumentsOf<TileArguments, kMasking> g) {
  using Tile = TileOf<kMasking>;
  ptx::grid_release();
  ptx::grid_wait();
  merge_row<Tile>(
      g,
      [&](const Tile&, int) {
        return [&g](float before, float maximum) { return rescale_factor(before, maximum, g.scale_log2); };
      },
      [&](const Tile& tile, int row, std::int64_t out, int column, float maximum, float sum, Vector<float, 4>& output) {
        store_quad<Element>(g, tile, row, out, column, maximum, sum, output);
      });
}

}  // namespace xgemm::attention
