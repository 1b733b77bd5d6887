// Merges the parts of the keys: a kernel of its own, after the one that left them (parts.cuh).
//
//   Operands   WgmmaArguments::part_states and part_outputs of all parts of a row; `part_columns` of them are outputs.
//   CTA        four warps, a row each. Its first instructions run while the kernel before ends (programmatic dependent launch).
//   Order      the sum of a row's sums by a tree over 32 parts at a time, from the first part that some row sees; outputs part
//              after part.
//   Floor      reads 4 part_columns + 8 bytes a row and part.
#pragma once
#include "attention/wgmma/parts.cuh"
#include "device/ptx/grid.cuh"

namespace xgemm::attention {

inline constexpr int kMergeWarps = 4, kLoadsTogether = 8;

/// The warp's row: calls store(tile, row, column, maximum, sum, outputs) for four columns at a time. `factors(tile, row,
/// maximum)` returns what turns the maximum of a part into the factor of its sum and outputs.
template <class Arguments, class Factors, class Store>
__device__ __forceinline__ void merge_row(const Arguments& g, const Factors& factors, const Store& store) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kMergeWarps + threadIdx.x / 32;
  const int tile_index = static_cast<int>(index / g.part_rows), row = static_cast<int>(index % g.part_rows);
  const int parts = static_cast<int>(g.parts.divisor), lane = static_cast<int>(threadIdx.x) % 32;
  if (tile_index >= g.items / parts) return;
  const RowTile tile(g, tile_index * parts);
  const std::int64_t out = tile.output_row(g, tile.row + row), first_part = part_row(g, tile_index, 0, row);
  if (out < 0) return;

  const float2* const states = g.part_states + first_part;
  const std::int64_t step = std::int64_t{g.part_rows} * g.part_columns;  // from a part's outputs to the next's
  float4 values[kLoadsTogether];
  const auto load = [&](int part, int column) {
    const float* const from = g.part_outputs + first_part * g.part_columns + part * step + min(column, g.part_columns - 4);
#pragma unroll
    for (int i = 0; i < kLoadsTogether; ++i)
      if (part + i < parts) values[i] = __ldcg(reinterpret_cast<const float4*>(from + i * step));
  };

  const float2 mine = lane < parts ? __ldcg(states + lane * g.part_rows) : float2{-INFINITY, 0.f};
  load(0, 4 * lane);  // before the maximum, on which no address depends
  float maximum = mine.x;
#pragma unroll 1
  for (int part = lane + 32; part < parts; part += 32) maximum = fmaxf(maximum, __ldcg(&states[part * g.part_rows].x));
  maximum = warp_reduce(maximum, [](float a, float b) { return fmaxf(a, b); });
  const auto factor_of = factors(tile, row, maximum);

#pragma unroll 1
  for (int column = 4 * lane; column - 4 * lane < g.part_columns; column += 128) {
    float sum = 0;
    Vector<float, 4> output = {};
#pragma unroll 1
    for (int first = 0; first < parts; first += 32) {
      float2 state = mine;
      if (first > 0 && first + lane < parts) state = __ldcg(states + (first + lane) * g.part_rows);
      const float factor = first + lane < parts ? factor_of(state.x) : 0.f;
      sum += warp_reduce(first + lane < parts ? state.y * factor : 0.f, [](float a, float b) { return a + b; });
#pragma unroll 1
      for (int part = first; part < min(first + 32, parts); part += kLoadsTogether) {
        if (part > 0 || column >= 128) load(part, column);
#pragma unroll
        for (int i = 0; i < kLoadsTogether; ++i) {
          const float f = __shfl_sync(kFullWarp, factor, part - first + i);
          if (part + i >= parts) continue;
          output[0] = fmaf(values[i].x, f, output[0]), output[1] = fmaf(values[i].y, f, output[1]);
          output[2] = fmaf(values[i].z, f, output[2]), output[3] = fmaf(values[i].w, f, output[3]);
        }
      }
    }
    if (column < g.part_columns) store(tile, row, out, column, maximum, sum, output);
  }
}

template <class Element, Masking kMasking>
__global__ void __launch_bounds__(32 * kMergeWarps) merge_parts(const __grid_constant__ WgmmaArguments g) {
  ptx::grid_release();
  ptx::grid_wait();
  merge_row(
      g,
      [&](const RowTile&, int, float maximum) {
        return [&g, exponentials = Exponentials<kMasking>(maximum, g.scale_log2)](float part) {
          return exponentials.factor(part, g.scale_log2);
        };
      },
      [&](const RowTile& tile, int row, std::int64_t out, int column, float maximum, float sum, Vector<float, 4>& output) {
        store_quad<Element, kMasking>(g, tile, row, out, column, maximum, sum, output);
      });
}

}  // namespace xgemm::attention
