// The end of a split: merges the warps' slices of the keys in shared memory, in order, and stores the rows, or writes the split's
// results to memory (tiles/merge.cuh).
#pragma once
#include "attention/mma/warp.cuh"
#include "attention/tiles/finish.cuh"

namespace xgemm::attention {

/// Called by the whole CTA; `memory`: mma_result_bytes().
template <class Element, int kIndex, Masking kMasking>
__device__ __forceinline__ void store_tile(const ArgumentsOf<MmaArguments, kMasking>& g,
                                           WarpRows<Element, kIndex, kMasking>& warp, const TileOf<kMasking>& tile,
                                           unsigned char* memory) {
  constexpr Tile kTile = kMmaTiles[kIndex];
  constexpr int kValueSize = kTile.value_size, kQuads = kValueSize / 4;
  static_assert(mma_result_bytes(kTile) <= kTile.stages * mma_stage_bytes(kTile));
  __shared__ float2 states[kMmaWarps * kMmaRows];  // [warp][row]: maximum and sum
  float* const outputs = reinterpret_cast<float*>(memory);
  // Offset of a warp's row and column. The exclusive or spreads the rows of a store over the banks.
  const auto place = [](int warp_row, int column) { return warp_row * kValueSize + (column ^ warp_row % 4 * 8); };
  const int lane = static_cast<int>(threadIdx.x) % 32;
  warp.finish();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (warp.row(h) >= g.partial_rows) continue;
    const int at = static_cast<int>(threadIdx.x) / 32 * kMmaRows + warp.row(h);
    if (lane % 4 == 0) states[at] = {warp.softmax.maximum[h], warp.softmax.sum[h]};
#pragma unroll
    for (int j = 0; j < kValueSize / 8; ++j)
      store_vector(outputs + place(at, 8 * j + 2 * (lane % 4)),
                   Vector<float, 2>{{warp.outputs[4 * j + 2 * h], warp.outputs[4 * j + 2 * h + 1]}});
  }
  __syncthreads();

#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < g.partial_rows * kQuads; i += kMmaThreads) {
    const int row = i / kQuads, column = i % kQuads * 4;
    float largest = -INFINITY, sum = 0;
#pragma unroll
    for (int w = 0; w < kMmaWarps; ++w) largest = fmaxf(largest, states[w * kMmaRows + row].x);
    Vector<float, 4> output = {};
#pragma unroll
    for (int w = 0; w < kMmaWarps; ++w) {
      const int at = w * kMmaRows + row;
      const float factor = rescale_factor(states[at].x, largest, g.scale_log2);
      sum = fmaf(states[at].y, factor, sum);
      const auto value = load_vector<4>(outputs + place(at, column));
#pragma unroll
      for (int c = 0; c < 4; ++c) output[c] = fmaf(value[c], factor, output[c]);
    }
    if (tile.splits(g) > 1) {
      const std::int64_t to = tile.partial_row(g, row);
      if (column == 0) g.partial_states[to] = {largest, sum};
      store_vector(g.partial_outputs + to * kValueSize + column, output);
    } else {
      const std::int64_t out = tile.output_row(g, tile.row + row);
      if (kMasking != Masking::sequences || out >= 0) store_quad<Element>(g, tile, row, out, column, largest, sum, output);
    }
  }
}

}  // namespace xgemm::attention
