// The end of a split: merges the warps' slices of the keys in shared memory, in order. The split is merged with the CTA's earlier
// ones, or written to memory (tiles/merge.cuh).
#pragma once
#include "attention/mma/warp.cuh"
#include "attention/tiles/finish.cuh"
#include "attention/tiles/merge.cuh"

namespace xgemm::attention {

/// A tile's results, four columns of a row at a time, over the CTA's threads.
template <class Element, int kIndex, Masking kMasking>
class MergedTile {
  static constexpr Tile kTile = kMmaTiles[kIndex];

 public:
  static constexpr bool kGathers = mma_gathers(kTile) && kMasking != Masking::sequences;  ///< may a CTA merge splits?

 private:
  static constexpr int kValueSize = kTile.value_size, kQuads = kValueSize / 4, kMine = kMmaRows * kQuads / kMmaThreads;
  static_assert(mma_result_bytes(kTile) <= kTile.stages * mma_stage_bytes(kTile));

  const ArgumentsOf<MmaArguments, kMasking>& g;
  float maximum[kGathers ? kMine : 1];  ///< of the splits so far
  MergedSplits splits[kGathers ? kMine : 1];

  /// Calls f(which of this thread's quads, row, column).
  template <class F>
  __device__ __forceinline__ void each(const F& f) const {
#pragma unroll(kGathers ? kMine : 1)
    for (int q = 0; q < kMine; ++q) {
      const int i = q * kMmaThreads + static_cast<int>(threadIdx.x), row = i / kQuads;
      if (row < g.partial_rows) f(q, row, i % kQuads * 4);
    }
  }
  /// Offset of a warp's row and column in shared memory. The exclusive or spreads the rows of a store over the banks.
  static __device__ __forceinline__ int place(int warp_row, int column) {
    return warp_row * kValueSize + (column ^ warp_row % 4 * 8);
  }

 public:
  __device__ __forceinline__ explicit MergedTile(const ArgumentsOf<MmaArguments, kMasking>& arguments) : g(arguments) {
#pragma unroll
    for (float& m : maximum) m = -INFINITY;
  }

  /// Adds split tile.split. Called by the whole CTA; `memory`: mma_result_bytes() that nothing else accesses until the CTA's
  /// next barrier.
  __device__ __forceinline__ void add(WarpRows<Element, kIndex, kMasking>& warp, const TileOf<kMasking>& tile,
                                      unsigned char* memory) {
    __shared__ float2 states[kMmaWarps * kMmaRows];  // [warp][row]: maximum and sum
    float* const outputs = reinterpret_cast<float*>(memory);
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

    each([&](int q, int row, int column) {
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
      } else if constexpr (kGathers) {
        const float before = maximum[q];
        maximum[q] = fmaxf(before, largest);
        splits[q].add(rescale_factor(before, maximum[q], g.scale_log2), rescale_factor(largest, maximum[q], g.scale_log2), sum,
                      output);
      } else {
        const std::int64_t out = tile.output_row(g, tile.row + row);
        if (kMasking != Masking::sequences || out >= 0) store_quad<Element>(g, tile, row, out, column, largest, sum, output);
      }
    });
  }

  /// Stores the rows, if all splits have been added.
  __device__ __forceinline__ void store(const TileOf<kMasking>& tile) {
    if constexpr (kGathers) {
      if (g.splits.divisor > 1) return;
      each([&](int q, int row, int column) {
        store_quad<Element>(g, tile, row, tile.output_row(g, tile.row + row), column, maximum[q], splits[q].sum,
                            splits[q].output);
      });
    }
  }
};

}  // namespace xgemm::attention
