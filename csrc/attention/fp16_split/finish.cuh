// The end of a tile of rows: its outputs, or a split's partial results.
#pragma once
#include "attention/fp16_split/softmax.cuh"
#include "attention/tiles/finish.cuh"

namespace xgemm::attention {

/// Stores the rows of a warp's accumulators, each thread its own pairs of columns: whole sectors of 32 bytes. `first`: this
/// thread's first row in the tile.
template <Masking kMasking, class Softmax, int kCount>
__device__ __forceinline__ void finish_rows(const SplitArguments& g, const RowTile& tile, Softmax& softmax,
                                            const float (&outputs)[kCount], int first) {
  softmax.finish();
  if (g.through_memory) return leave_partials(outputs, softmax.maximum, softmax.sum, g, tile, first);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int in_tile = first + 8 * h;
    const std::int64_t row = tile.output_row(g, tile.row + in_tile);
    if (row < 0 || in_tile >= g.tile_rows) continue;
    const float sum = softmax.sum[h], inverse = kTruncation / sum;
    if (g.lse != nullptr && static_cast<int>(threadIdx.x % 4) == 0)
      g.lse[row] = log_sum(softmax.maximum[h], sum / kWeightScale, softmax_scale<kMasking>(g, tile, tile.row + in_tile, false));
    float* const to = static_cast<float*>(g.out) + g.out_rows.place(row) * g.dv;
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
      const int column = 8 * j + 2 * (static_cast<int>(threadIdx.x % 4));
      Vector<float, 2> output;  // 0 if the row sees no key
#pragma unroll
      for (int c = 0; c < 2; ++c) output[c] = sum == 0.f ? 0.f : outputs[4 * j + 2 * h + c] * inverse;
      store_columns(to, column, g.dv, output);
    }
  }
}

}  // namespace xgemm::attention
