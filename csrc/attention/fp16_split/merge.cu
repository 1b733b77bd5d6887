// Merges splits of the keys (attention/tiles/merge.cuh) for fp32.
#include "attention/fp16_split/launch.h"
#include "attention/fp16_split/softmax.cuh"
#include "attention/tiles/merge.cuh"

namespace xgemm::attention {

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

void launch_split_merge(bool natural_units, const SplitArguments& arguments, std::int64_t rows, cudaStream_t stream) {
  enqueue(natural_units ? merge_fp32_splits<Masking::additive> : merge_fp32_splits<Masking::edges>,
          merge_grid(rows, arguments.merge_slices), stream, arguments);
}

}  // namespace xgemm::attention
