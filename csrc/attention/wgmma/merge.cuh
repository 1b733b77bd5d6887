// Merges the splits of the keys: a kernel of its own, after the one that wrote them (splits.cuh).
//
//   Operands   WgmmaArguments::partial_states and partial_outputs of all splits of a row, which has `partial_columns` outputs.
//   CTA        four warps, one row each. Its first instructions run while the previous kernel ends (programmatic dependent
//              launch).
//   Order      a row's sum by a tree over 32 splits at a time, from the first split that some row sees; outputs split by split.
//   Floor      reads 4 partial_columns + 8 bytes per row and split.
#pragma once
#include "attention/wgmma/splits.cuh"
#include "device/ptx/grid.cuh"

namespace xgemm::attention {

inline constexpr int kMergeWarps = 4, kLoadsTogether = 8;

/// Merges the warp's row: calls store(tile, row, column, maximum, sum, outputs) for four columns at a time. `factors(tile, row,
/// maximum)` returns a function from a split's maximum to the factor of its sum and outputs.
template <class Arguments, class Factors, class Store>
__device__ __forceinline__ void merge_row(const Arguments& g, const Factors& factors, const Store& store) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kMergeWarps + threadIdx.x / 32;
  const int tile_index = static_cast<int>(index / g.partial_rows), row = static_cast<int>(index % g.partial_rows);
  const int splits = static_cast<int>(g.splits.divisor), lane = static_cast<int>(threadIdx.x) % 32;
  if (tile_index >= g.items / splits) return;
  const RowTile tile(g, tile_index * splits);
  const std::int64_t out = tile.output_row(g, tile.row + row), first_place = partial_row(g, tile_index, 0, row);
  if (out < 0) return;

  const float2* const states = g.partial_states + first_place;
  const std::int64_t step = std::int64_t{g.partial_rows} * g.partial_columns;  // from a split's outputs to the next's
  float4 values[kLoadsTogether];
  const auto load = [&](int split, int column) {
    const float* const from =
        g.partial_outputs + first_place * g.partial_columns + split * step + min(column, g.partial_columns - 4);
#pragma unroll
    for (int i = 0; i < kLoadsTogether; ++i)
      if (split + i < splits) values[i] = __ldcg(reinterpret_cast<const float4*>(from + i * step));
  };

  const float2 mine = lane < splits ? __ldcg(states + lane * g.partial_rows) : float2{-INFINITY, 0.f};
  load(0, 4 * lane);  // before the maximum, on which no address depends
  float maximum = mine.x;
#pragma unroll 1
  for (int split = lane + 32; split < splits; split += 32) maximum = fmaxf(maximum, __ldcg(&states[split * g.partial_rows].x));
  maximum = warp_reduce(maximum, [](float a, float b) { return fmaxf(a, b); });
  const auto factor_of = factors(tile, row, maximum);

#pragma unroll 1
  for (int column = 4 * lane; column - 4 * lane < g.partial_columns; column += 128) {
    float sum = 0;
    Vector<float, 4> output = {};
#pragma unroll 1
    for (int first = 0; first < splits; first += 32) {
      float2 state = mine;
      if (first > 0 && first + lane < splits) state = __ldcg(states + (first + lane) * g.partial_rows);
      const float factor = first + lane < splits ? factor_of(state.x) : 0.f;
      sum += warp_reduce(first + lane < splits ? state.y * factor : 0.f, [](float a, float b) { return a + b; });
#pragma unroll 1
      for (int split = first; split < min(first + 32, splits); split += kLoadsTogether) {
        if (split > 0 || column >= 128) load(split, column);
#pragma unroll
        for (int i = 0; i < kLoadsTogether; ++i) {
          const float f = __shfl_sync(kFullWarp, factor, split - first + i);
          if (split + i >= splits) continue;
          output[0] = fmaf(values[i].x, f, output[0]), output[1] = fmaf(values[i].y, f, output[1]);
          output[2] = fmaf(values[i].z, f, output[2]), output[3] = fmaf(values[i].w, f, output[3]);
        }
      }
    }
    if (column < g.partial_columns) store(tile, row, out, column, maximum, sum, output);
  }
}

template <class Element, Masking kMasking>
__global__ void __launch_bounds__(32 * kMergeWarps) merge_splits(const __grid_constant__ WgmmaArguments g) {
  ptx::grid_release();
  ptx::grid_wait();
  merge_row(
      g,
      [&](const RowTile&, int, float maximum) {
        return [&g, exponentials = Exponentials<kMasking>(maximum, g.scale_log2)](float split) {
          return exponentials.factor(split, g.scale_log2);
        };
      },
      [&](const RowTile& tile, int row, std::int64_t out, int column, float maximum, float sum, Vector<float, 4>& output) {
        store_quad<Element, kMasking>(g, tile, row, out, column, maximum, sum, output);
      });
}

}  // namespace xgemm::attention
