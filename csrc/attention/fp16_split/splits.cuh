// Merges splits of the keys (attention/tiles/splits.cuh, merge.cuh) for fp32.
#pragma once
#include "attention/fp16_split/arguments.h"
#include "attention/fp16_split/softmax.cuh"
#include "attention/fp16_split/tile.h"
#include "attention/tiles/merge.cuh"

namespace xgemm::attention {

/// The softmax's factor of a packed row's scores: in natural units, or (log2) in units of log2. Additive masks have been added
/// in natural units.
template <Masking kMasking>
__device__ __forceinline__ float softmax_scale(const SplitArguments& g, const RowTile& tile, int row, bool log2) {
  if constexpr (kMasking == Masking::additive)
    return log2 ? kLog2E : 1.f;
  else
    return query_scale(g, tile, row) * ((log2 ? g.scale_log2 : g.score_scale) * g.correction);
}

/// Stores four neighbouring columns of an output row, or those in bounds.
__device__ __forceinline__ void store_columns(float* row, int column, int columns, const Vector<float, 4>& x) {
  if (columns % 4 == 0) return store_vector(row + column, x);
#pragma unroll
  for (int c = 0; c < 4; ++c)
    if (column + c < columns) row[column + c] = x[c];
}

/// merge_splits() for fp32: rows have their own scales and sums.
template <Masking kMasking>
__global__ void __launch_bounds__(kWarpSize* kMergeWarps) merge_fp32_splits(const __grid_constant__ SplitArguments g) {
  ptx::grid_release();
  merge_row<RowTile>(
      g,
      [&](const RowTile& tile, int row) {
        return [scale = softmax_scale<kMasking>(g, tile, tile.row + row, true)](float before, float maximum) {
          return rescale_factor(before, maximum, scale);
        };
      },
      [&](const RowTile& tile, int row, std::int64_t out, int column, float maximum, float sum, Vector<float, 4>& output) {
        if (column == 0 && g.lse != nullptr)
          g.lse[out] = log_sum(maximum, sum / kWeightScale, softmax_scale<kMasking>(g, tile, tile.row + row, false));
        if (column >= g.dv) return;
        const float inverse = kTruncation / sum;
#pragma unroll
        for (int c = 0; c < 4; ++c) output[c] = sum == 0.f ? 0.f : output[c] * inverse;
        store_columns(static_cast<float*>(g.out) + g.out_rows.place(out) * g.dv, column, g.dv, output);
      });
}

}  // namespace xgemm::attention
