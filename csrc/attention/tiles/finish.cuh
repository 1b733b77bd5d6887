// The end of a row: adds its sink, normalises and rounds its outputs.
#pragma once
#include "attention/tiles/scheduler.cuh"
#include "attention/tiles/softmax.cuh"
#include "device/vector.cuh"

namespace xgemm::attention {

/// Adds the sink, if there are any, to the maximum and sum of a packed row of the tile, as the score of one more key; returns
/// the factor of the row's outputs.
__device__ __forceinline__ float finish_row(const TileArguments& g, const RowTile& tile, int packed_row, float& maximum,
                                            float& sum) {
  if (g.sinks.values == nullptr) return 1 / sum;
  const int head = tile.head + packed_row - g.pack.divide(packed_row) * static_cast<int>(g.pack.divisor);
  const std::int64_t at = tile.outer * g.sinks.outer + tile.inner * g.sinks.inner + head * g.sinks.head;
  float sink;
  with_element_type(g.sinks.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    sink = convert<float>(static_cast<const T*>(g.sinks.values)[at]) / g.scale;
  });
  const float before = maximum;
  maximum = fmaxf(before, sink);
  const float factor = rescale_factor(before, maximum, g.scale_log2);
  const float weight = exp2_approx((sink - softmax_base(maximum)) * g.scale_log2);
  sum = fmaf(sum, factor, weight);
  return fmaf(0.f, weight, factor) / sum;  // as softmax: NaN if the sink is inf or NaN
}

/// Normalises and stores four columns of a row of the tile, given unnormalised with the row's maximum and sum.
template <class Element>
__device__ __forceinline__ void store_quad(const TileArguments& g, const RowTile& tile, int row, std::int64_t out, int column,
                                           float maximum, float sum, Vector<float, 4>& output) {
  const float keys = sum, inverse = finish_row(g, tile, tile.row + row, maximum, sum);
  if (column == 0 && g.lse != nullptr) g.lse[out] = log_sum(maximum, sum, g.scale);
  if (column >= g.dv) return;
#pragma unroll
  for (int c = 0; c < 4; ++c) output[c] = keys == 0.f ? 0.f : output[c] * inverse;
  store_vector(static_cast<std::uint32_t*>(g.out) + (g.out_rows.place(out) * g.dv + column) / 2,
               Vector<std::uint32_t, 2>{{pack_pair<Element>(output[0], output[1]), pack_pair<Element>(output[2], output[3])}});
}

}  // namespace xgemm::attention
