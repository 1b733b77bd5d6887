// Parts of the keys, as attention/wgmma/parts.cuh: each item leaves its rows' maxima, sums and outputs in memory; the warpgroup
// that comes last merges them, in order.
#pragma once
#include "attention/fp16_split/arguments.h"
#include "attention/fp16_split/softmax.cuh"
#include "attention/fp16_split/tile.h"
#include "attention/wgmma/parts.cuh"

namespace xgemm::attention {

/// What the softmax multiplies scores by, of a packed row: in natural units, or (log2) in units of log2. Additive masks have been
/// added in natural units.
template <Masking kMasking>
__device__ __forceinline__ float softmax_scale(const SplitArguments& g, const RowTile& tile, int row, bool log2) {
  if constexpr (kMasking == Masking::additive)
    return log2 ? kLog2E : 1.f;
  else
    return query_scale(g, tile, row) * ((log2 ? g.scale_log2 : g.score_scale) * g.correction);
}

/// Four neighbouring columns of an output row, as far as there are so many.
__device__ __forceinline__ void store_columns(float* row, int column, int columns, const Vector<float, 4>& x) {
  if (columns % 4 == 0) return store_vector(row + column, x);
#pragma unroll
  for (int c = 0; c < 4; ++c)
    if (column + c < columns) row[column + c] = x[c];
}

/// Outputs and log-sum-exp of the warpgroup's 64 rows from all parts: a thread takes four columns of a row at a time.
template <int kIndex, Masking kMasking>
__device__ __forceinline__ void merge_split_parts(const SplitArguments& g, const RowTile& tile, int first_row) {
  constexpr int kQuads = kSplitTiles[kIndex].value_size / 4;
  const int parts = static_cast<int>(g.parts.divisor), rows = min(64, g.part_rows - first_row);
  for (int i = static_cast<int>(threadIdx.x) % 128; i < rows * kQuads; i += 128) {
    const int row = first_row + i / kQuads, column = i % kQuads * 4;
    const std::int64_t out = tile.output_row(g, tile.row + row);
    if (out < 0) continue;
    const std::int64_t from = part_row(g, tile.index, 0, row);
    const float2* const states = g.part_states + from;
    const float4* const outputs = reinterpret_cast<const float4*>(g.part_outputs + from * (4 * kQuads) + column);
    const float scale = softmax_scale<kMasking>(g, tile, tile.row + row, true);
    float maximum = -INFINITY, sum = 0;
    for (int part = 0; part < parts; ++part) maximum = fmaxf(maximum, __ldcg(&states[part * g.part_rows].x));
    Vector<float, 4> output = {};
#pragma unroll 4
    for (int part = 0; part < parts; ++part) {
      const float2 state = __ldcg(states + part * g.part_rows);
      const float4 value = __ldcg(outputs + static_cast<std::int64_t>(part) * g.part_rows * kQuads);
      const float factor = rescale_factor(state.x, maximum, scale);
      sum = fmaf(state.y, factor, sum);
      output[0] = fmaf(value.x, factor, output[0]), output[1] = fmaf(value.y, factor, output[1]);
      output[2] = fmaf(value.z, factor, output[2]), output[3] = fmaf(value.w, factor, output[3]);
    }
    if (column == 0 && g.lse != nullptr)
      g.lse[out] = log_sum(maximum, sum / kWeightScale, softmax_scale<kMasking>(g, tile, tile.row + row, false));
    if (column >= g.dv) continue;
    const float inverse = kTruncation / sum;
#pragma unroll
    for (int c = 0; c < 4; ++c) output[c] = sum == 0.f ? 0.f : output[c] * inverse;
    store_columns(static_cast<float*>(g.out) + out * g.dv, column, g.dv, output);
  }
}

}  // namespace xgemm::attention
