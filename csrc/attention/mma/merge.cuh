// The end of a tile: merges the warps' slices of the keys in shared memory, in order; writes splits to memory
// (wgmma/merge.cuh).
#pragma once
#include "attention/mma/warp.cuh"
#include "attention/wgmma/finish.cuh"
#include "attention/wgmma/splits.cuh"

namespace xgemm::attention {

/// The warps' results in shared memory, where keys and values were.
template <int kValueSize>
struct WarpResults {
  static constexpr int kPitch = kValueSize + 8;  // floats per row: the rows of a store are in different banks
  static constexpr int kBytes = kMmaWarps * kMmaRows * (4 * kPitch + 8);
  float* outputs;  ///< [warp][row], not normalised
  float2* states;  ///< [warp][row]: maximum and sum
  __device__ __forceinline__ explicit WarpResults(unsigned char* memory)
      : outputs(reinterpret_cast<float*>(memory)), states(reinterpret_cast<float2*>(outputs + kMmaWarps * kMmaRows * kPitch)) {}
};

/// Called by the whole CTA when nothing accesses keys and values in shared memory any more.
template <class Element, int kIndex, Masking kMasking>
__device__ __forceinline__ void finish_tile(WarpRows<Element, kIndex, kMasking>& warp, const MmaArguments& g, const RowTile& tile,
                                            unsigned char* memory) {
  constexpr int kValueSize = kMmaTiles[kIndex].value_size, kQuads = kValueSize / 4;
  using Results = WarpResults<kValueSize>;
  static_assert(Results::kBytes <= mma_shared_bytes(kMmaTiles[kIndex]));
  const Results results(memory);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  warp.softmax.finish();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int at = thread / 32 * kMmaRows + lane / 4 + 8 * h;
    if (lane % 4 == 0) results.states[at] = {warp.softmax.maximum[h], warp.softmax.sum[h]};
#pragma unroll
    for (int j = 0; j < kValueSize / 8; ++j)
      store_vector(results.outputs + at * Results::kPitch + 8 * j + 2 * (lane % 4),
                   Vector<float, 2>{{warp.outputs[4 * j + 2 * h], warp.outputs[4 * j + 2 * h + 1]}});
  }
  __syncthreads();

  const bool whole = g.splits.divisor == 1;
#pragma unroll 1
  for (int i = thread; i < g.partial_rows * kQuads; i += kMmaThreads) {
    const int row = i / kQuads, column = i % kQuads * 4;
    float maximum = -INFINITY, sum = 0;
    for (int at = row; at < kMmaWarps * kMmaRows; at += kMmaRows) maximum = fmaxf(maximum, results.states[at].x);
    const Exponentials<kMasking> exponentials(maximum, g.scale_log2);
    Vector<float, 4> output = {};
    for (int at = row; at < kMmaWarps * kMmaRows; at += kMmaRows) {
      const float2 state = results.states[at];
      const auto value = load_vector<4>(results.outputs + at * Results::kPitch + column);
      const float factor = exponentials.factor(state.x, g.scale_log2);
      sum = fmaf(state.y, factor, sum);
#pragma unroll
      for (int c = 0; c < 4; ++c) output[c] = fmaf(value[c], factor, output[c]);
    }
    if (whole) {
      store_quad<Element, kMasking>(g, tile, row, tile.output_row(g, tile.row + row), column, maximum, sum, output);
    } else {
      const std::int64_t to = partial_row(g, tile.index, tile.split, row);
      if (column == 0) g.partial_states[to] = {maximum, sum};
      store_vector(g.partial_outputs + to * kValueSize + column, output);
    }
  }
}

}  // namespace xgemm::attention
