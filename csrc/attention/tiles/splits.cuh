// Splits of the keys: each item writes its rows' maxima, sums and unnormalised outputs to memory, and merge.cuh merges them in
// order. So a row's bits do not depend on which CTA computed a split, or when.
//
// Floor: writes and reads 4 value_size + 8 bytes per row and split, against 4 (D + Dv) split_keys bytes of keys and values per
// tile.
#pragma once
#include "attention/tiles/scheduler.cuh"
#include "device/vector.cuh"

namespace xgemm::attention {

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
