// The end of a row: adds its sink, normalises and rounds its outputs. Or of a split of the keys: each item writes its rows'
// maxima, sums and unnormalised outputs to memory, and merge.cuh merges them in order. So a row's bits do not depend on which CTA
// computed a split, or when.
//
// Floor of splits: writes and reads 4 value_size + 8 bytes per row and split, against 4 (D + Dv) split_keys bytes of keys and
// values per tile.
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

/// A consumer thread's position among the CTA's rows.
struct Place {
  int warpgroup, lane;
  int warp_row;  ///< the warp's first row
  __device__ __forceinline__ Place() {
    const int thread = static_cast<int>(threadIdx.x) - 128;
    warpgroup = warp_uniform(thread / 128), lane = thread % 32, warp_row = warp_uniform(thread / 32) * 16;
  }
  __device__ __forceinline__ int row(int h) const { return warp_row + lane / 4 + 8 * h; }  ///< of accumulators 4 j + 2 h + c
};

/// Writes an item's results of a warp's 16 rows; `first_row`: this thread's first, in the tile. `outputs` are those of columns
/// from 2 kCount `side` on, of kSides.
template <int kSides = 1, int kCount, class Arguments, class RowTile>
__device__ __forceinline__ void leave_partials(const float (&outputs)[kCount], const float (&maximum)[2], const float (&sum)[2],
                                               const Arguments& g, const RowTile& tile, int first_row, int side = 0) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first_row + 8 * h;
    if (row >= g.partial_rows || tile.output_row(g, tile.row + row) < 0) continue;
    const std::int64_t to = tile.partial_row(g, row);
    if (lane % 4 == 0 && side == 0) g.partial_states[to] = {maximum[h], sum[h]};
    float* const columns = g.partial_outputs + (to * kSides + side) * (2 * kCount) + 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j)
      store_vector(columns + 8 * j, Vector<float, 2>{{outputs[4 * j + 2 * h], outputs[4 * j + 2 * h + 1]}});
  }
}

}  // namespace xgemm::attention
