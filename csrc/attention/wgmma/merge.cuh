// The end of a row: its sink, its parts merged in order, its outputs normalised and rounded.
#pragma once
#include "attention/wgmma/scheduler.cuh"
#include "attention/wgmma/softmax.cuh"
#include "device/ptx/warpgroup.cuh"
#include "device/vector.cuh"

namespace xgemm::attention {

/// Adds the sink of a packed row of the tile, if there are any, to the row's maximum and sum, as the score of one more key;
/// returns the factor of the row's outputs.
template <Masking kMasking>
__device__ __forceinline__ float finish_row(const WgmmaArguments& g, const RowTile& tile, int packed_row, float& maximum,
                                            float& sum) {
  if (g.sinks.values == nullptr) return 1 / sum;
  const int head = tile.head + packed_row - g.pack.divide(packed_row) * static_cast<int>(g.pack.divisor);
  const std::int64_t at = tile.outer * g.sinks.outer + tile.inner * g.sinks.inner + head * g.sinks.head;
  float sink;
  const auto load = [&](auto type) {
    using T = typename decltype(type)::type;
    sink = convert<float>(static_cast<const T*>(g.sinks.values)[at]) / g.scale;
  };
  if (g.sinks.dtype == DType::f32)
    load(Type<float>{});
  else if (g.sinks.dtype == DType::f16)
    load(Type<half>{});
  else
    load(Type<bf16>{});
  const float before = maximum;
  maximum = fmaxf(before, sink);
  const Exponentials<kMasking> exponentials(maximum, g.scale_log2);
  const float factor = exponentials.factor(before, g.scale_log2), weight = exponentials.weight(sink, g.scale_log2);
  sum = fmaf(sum, factor, weight);
  return fmaf(0.f, weight, factor) / sum;  // as softmax: NaN where the sink is inf or NaN
}

/// Where row `row` of a tile's part is kept.
__device__ __forceinline__ std::int64_t part_row(const WgmmaArguments& g, int tile, int part, int row) {
  return (static_cast<std::int64_t>(tile) * static_cast<int>(g.parts.divisor) + part) * g.part_rows + row;
}

/// The largest score of each row over all parts, to shared memory: as many lanes a row as there are threads for it.
__device__ __forceinline__ void merge_maxima(const WgmmaArguments& g, const RowTile& tile, int first_row, int rows,
                                             float* maxima) {
  const int parts = static_cast<int>(g.parts.divisor), thread = static_cast<int>(threadIdx.x) % 128;
  int lanes = 32;
  while (lanes > 2 && rows * lanes > 128) lanes /= 2;
  const int row = thread / lanes;
  float maximum = -INFINITY;
  if (row < rows) {
    const float2* const states = g.part_states + part_row(g, tile.index, 0, first_row + row);
#pragma unroll 8
    for (int part = thread % lanes; part < parts; part += lanes) maximum = fmaxf(maximum, __ldcg(&states[part * g.part_rows].x));
  }
  for (int offset = lanes / 2; offset > 0; offset /= 2) maximum = fmaxf(maximum, __shfl_xor_sync(kFullWarp, maximum, offset));
  if (row < rows && thread % lanes == 0) maxima[row] = maximum;
}

/// Four columns of a row of the tile: outputs that are not normalised, with the row's maximum and sum, to memory.
template <class Element, Masking kMasking>
__device__ __forceinline__ void store_quad(const WgmmaArguments& g, const RowTile& tile, int row, std::int64_t out, int column,
                                           float maximum, float sum, Vector<float, 4>& output) {
  const float keys = sum, inverse = finish_row<kMasking>(g, tile, tile.row + row, maximum, sum);
  if (column == 0 && g.lse != nullptr) g.lse[out] = log_sum(maximum, sum, g.scale);
  if (column >= g.dv) return;
#pragma unroll
  for (int c = 0; c < 4; ++c) output[c] = keys == 0.f ? 0.f : output[c] * inverse;
  store_vector(static_cast<std::uint32_t*>(g.out) + (out * g.dv + column) / 2,
               Vector<std::uint32_t, 2>{{pack_pair<Element>(output[0], output[1]), pack_pair<Element>(output[2], output[3])}});
}

/// Outputs and log-sum-exp of 64 rows from all parts: a thread takes four columns of a row at a time, with the
/// loads of kTogether parts and kRowsTogether rows in flight together. By 128 threads, which meet at `barrier`; `maxima`: room
/// for 64 in shared memory.
template <class Element, Masking kMasking, int kValueSize, int kTogether, int kRowsTogether>
__device__ __forceinline__ void merge_parts(const WgmmaArguments& g, const RowTile& tile, int first_row, float* maxima,
                                            int barrier) {
  constexpr int kQuads = kValueSize / 4;
  const int parts = static_cast<int>(g.parts.divisor);
  int rows = min(64, g.part_rows - first_row);  // those behind the last position are the last ones
  while (rows > 0 && tile.output_row(g, tile.row + first_row + rows - 1) < 0) --rows;
  merge_maxima(g, tile, first_row, rows, maxima);
  ptx::named_barrier_sync(barrier, 128);
#pragma unroll(kRowsTogether)
  for (int i = static_cast<int>(threadIdx.x) % 128; i < rows * kQuads; i += 128) {
    const int row = first_row + i / kQuads, column = i % kQuads * 4;
    const std::int64_t out = tile.output_row(g, tile.row + row), from = part_row(g, tile.index, 0, row);
    const float2* const states = g.part_states + from;
    const float* const outputs = g.part_outputs + from * (4 * kQuads) + column;
    float maximum = maxima[i / kQuads];
    const Exponentials<kMasking> exponentials(maximum, g.scale_log2);
    float sum = 0;
    Vector<float, 4> output = {};
    for (int first = 0; first < parts; first += kTogether) {
      float2 state[kTogether];
      float4 value[kTogether];
#pragma unroll
      for (int p = 0; p < kTogether; ++p) {
        const std::int64_t at = static_cast<std::int64_t>(min(first + p, parts - 1)) * g.part_rows;
        state[p] = __ldcg(states + at);
        value[p] = __ldcg(reinterpret_cast<const float4*>(outputs + at * (4 * kQuads)));
      }
#pragma unroll
      for (int p = 0; p < kTogether; ++p) {
        if (first + p >= parts) break;
        const float factor = exponentials.factor(state[p].x, g.scale_log2);
        sum = fmaf(state[p].y, factor, sum);
        output[0] = fmaf(value[p].x, factor, output[0]), output[1] = fmaf(value[p].y, factor, output[1]);
        output[2] = fmaf(value[p].z, factor, output[2]), output[3] = fmaf(value[p].w, factor, output[3]);
      }
    }
    store_quad<Element, kMasking>(g, tile, row, out, column, maximum, sum, output);
  }
  ptx::named_barrier_sync(barrier, 128);  // maxima may be written again
}

}  // namespace xgemm::attention
