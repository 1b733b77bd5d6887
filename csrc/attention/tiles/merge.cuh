// Merges the splits of the keys: a kernel of its own, after the one that wrote them (finish.cuh).
//
//   Operands   TileArguments::partial_states and partial_outputs of all splits of a row, which has `partial_columns` outputs.
//   CTA        eight warps, one row each; or one row, if there may be many splits: a warp takes every eighth. It finds
//              its tile while the previous kernel, which has waited for the one before it, ends (programmatic dependent launch).
//   Order      splits of a warp, then warps in order, all relative to the row's maximum.
//   Floor      reads 4 partial_columns + 8 bytes per row and split.
#pragma once
#include "attention/tiles/finish.cuh"
#include "attention/tiles/sequences.cuh"
#include "device/integer.h"
#include "device/launch.h"
#include "device/ptx/grid.cuh"

namespace xgemm::attention {

inline constexpr int kLoadsTogether = 8;

/// The grid of a merge of so many rows.
inline Grid merge_grid(std::int64_t rows, int slices) {
  return {
      .blocks = static_cast<unsigned>(ceil_div(rows * slices, kMergeWarps)), .threads = kWarpSize * kMergeWarps, .early = true};
}

/// Merges a row: calls store(tile, row, index in the output, column, maximum, sum, outputs) for four columns at a time.
/// `factors(tile, row)` returns a function from an earlier maximum and the new one to the factor of sums relative to the earlier
/// one.
template <class RowTile, class Arguments, class Factors, class Store>
__device__ __forceinline__ void merge_row(const Arguments& g, const Factors& factors, const Store& store) {
  __shared__ Vector<float, 4> shared_outputs[kMergeWarps][kWarpSize];
  __shared__ float shared_sums[kMergeWarps];
  const int warp = warp_uniform(static_cast<int>(threadIdx.x) / kWarpSize), lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int slices = g.merge_slices, slice = slices == 1 ? 0 : warp;
  const std::int64_t index = slices == 1 ? static_cast<std::int64_t>(blockIdx.x) * kMergeWarps + warp : blockIdx.x;
  const int tile_index = static_cast<int>(index / g.partial_rows), row = static_cast<int>(index % g.partial_rows);
  const RowTile tile = RowTile::to_merge(g, min(tile_index, merged_tiles(g) - 1));
  const int splits = tile.splits(g), row_step = tile.partial_step(g);
  const std::int64_t out = tile.output_row(g, tile.row + row), first_place = tile.partial_row(g, row);
  ptx::grid_wait();  // of all CTAs: the end of this kernel is the end of the previous one, too
  if (tile_index >= merged_tiles(g) || !tile.merges() || out < 0) return;

  const float2* const states = g.partial_states + first_place;
  const std::int64_t step = std::int64_t{row_step} * g.partial_columns;  // from a split's outputs to the next's
  Vector<float, 4> values[kLoadsTogether];
  const auto load = [&](int first, int column) {
    const float* const from = g.partial_outputs + first_place * g.partial_columns + min(column, g.partial_columns - 4);
#pragma unroll
    for (int i = 0; i < kLoadsTogether; ++i) {
      const int split = first + i * slices;
      if (split >= splits) continue;
      const float4 loaded = __ldcg(reinterpret_cast<const float4*>(from + split * step));
      values[i] = {{loaded.x, loaded.y, loaded.z, loaded.w}};
    }
  };
  load(slice, 4 * lane);  // before the maximum, on which no address depends
  float maximum = -INFINITY;
  for (int split = lane; split < splits; split += kWarpSize) maximum = fmaxf(maximum, __ldcg(states + split * row_step).x);
  maximum = warp_reduce(maximum, [](float x, float y) { return fmaxf(x, y); });
  const auto factor_of = factors(tile, row);

#pragma unroll 1
  for (int column = 4 * lane; column - 4 * lane < g.partial_columns; column += 4 * kWarpSize) {
    float sum = 0;
    Vector<float, 4> output = {};
#pragma unroll 1
    for (int first = slice; first < splits; first += kLoadsTogether * slices) {
      if (first > slice || column >= 4 * kWarpSize) load(first, column);
      const int mine = first + lane * slices;  // the split whose factor this lane computes
      const float2 state = lane < kLoadsTogether && mine < splits ? __ldcg(states + mine * row_step) : float2{-INFINITY, 0.f};
      const float factor = factor_of(state.x, maximum);
#pragma unroll
      for (int i = 0; i < kLoadsTogether; ++i) {
        const float of_split = __shfl_sync(kFullWarp, factor, i), split_sum = __shfl_sync(kFullWarp, state.y, i);
        if (first + i * slices >= splits) continue;
        sum = fmaf(split_sum, of_split, sum);
#pragma unroll
        for (int c = 0; c < 4; ++c) output[c] = fmaf(values[i][c], of_split, output[c]);
      }
    }
    if (slices > 1) {
      shared_outputs[warp][lane] = output;
      if (lane == 0) shared_sums[warp] = sum;
      __syncthreads();
      if (warp == 0)
#pragma unroll
        for (int w = 1; w < kMergeWarps; ++w) {
          sum += shared_sums[w];
          const Vector<float, 4> other = shared_outputs[w][lane];
#pragma unroll
          for (int c = 0; c < 4; ++c) output[c] += other[c];
        }
      __syncthreads();
    }
    if (slice == 0 && column < g.partial_columns) store(tile, row, out, column, maximum, sum, output);
  }
}

template <class Element, Masking kMasking>
__global__ void __launch_bounds__(kWarpSize* kMergeWarps)
    merge_splits(const __grid_constant__ ArgumentsOf<TileArguments, kMasking> g) {
  using Tile = TileOf<kMasking>;
  ptx::grid_release();
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
