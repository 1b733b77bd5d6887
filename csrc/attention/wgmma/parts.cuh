// Parts of the keys: each item leaves its rows' maxima, sums and unnormalised outputs in memory; the warpgroup that comes last
// merges them, in order. So a row's bits do not depend on who computed which part when.
//
// Floor: reads and writes 4 value_size + 8 bytes a row and part, against 4 (D + Dv) part_keys bytes of keys and values a tile.
#pragma once
#include "attention/wgmma/epilogue.cuh"
#include "device/vector.cuh"

namespace xgemm::attention {

/// Where row `row` of a tile's part is kept.
__device__ __forceinline__ std::int64_t part_row(const WgmmaArguments& g, int tile, int part, int row) {
  return (static_cast<std::int64_t>(tile) * static_cast<int>(g.parts.divisor) + part) * g.part_rows + row;
}

/// The largest score of each row over all parts, to shared memory: as many lanes a row as there are threads for it.
template <int kIndex>
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

/// Outputs and log-sum-exp of the warpgroup's 64 rows from all parts: a thread takes four columns of a row at a time, with the
/// loads of several rows in flight together. `maxima`: room for 64 in shared memory.
template <class Element, int kIndex, Masking kMasking>
__device__ __forceinline__ void merge_parts(const WgmmaArguments& g, const RowTile& tile, int first_row, float* maxima) {
  constexpr int kQuads = kWgmmaTiles[kIndex].value_size / 4, kTogether = kWgmmaTiles[kIndex].consumers == 1 ? 16 : 8;  // parts
  constexpr int kRowsTogether = kWgmmaTiles[kIndex].consumers == 2 ? 2 : 1;  // as registers allow
  const int parts = static_cast<int>(g.parts.divisor);
  int rows = min(64, g.part_rows - first_row);  // those behind the last position are the last ones
  while (rows > 0 && tile.output_row(g, tile.row + first_row + rows - 1) < 0) --rows;
  merge_maxima<kIndex>(g, tile, first_row, rows, maxima);
  ptx::named_barrier_sync(kEpilogueBarrier + first_row / 64, 128);
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
    const float keys = sum, inverse = finish_row<kMasking>(g, tile, tile.row + row, maximum, sum);
    if (column == 0 && g.lse != nullptr) g.lse[out] = log_sum(maximum, sum, g.scale);
    if (column >= g.dv) continue;
#pragma unroll
    for (int c = 0; c < 4; ++c) output[c] = keys == 0.f ? 0.f : output[c] * inverse;
    store_vector(static_cast<std::uint32_t*>(g.out) + (out * g.dv + column) / 2,
                 Vector<std::uint32_t, 2>{{pack_pair<Element>(output[0], output[1]), pack_pair<Element>(output[2], output[3])}});
  }
  ptx::named_barrier_sync(kEpilogueBarrier + first_row / 64, 128);  // maxima may be written again
}

/// Leaves an item's results of the warpgroup's rows; the last warpgroup of these rows to come calls `merge`. `flag`: in shared
/// memory.
template <int kConsumers, int kCount, class Merge>
__device__ __forceinline__ void leave_part(const float (&outputs)[kCount], const float (&maximum)[2], const float (&sum)[2],
                                           const WgmmaArguments& g, const RowTile& tile, unsigned* flag, const Merge& merge) {
  const Place place;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = place.row(h);
    if (row >= g.part_rows || tile.output_row(g, tile.row + row) < 0) continue;
    const std::int64_t to = part_row(g, tile.index, tile.part, row);
    if (place.lane % 4 == 0) g.part_states[to] = {maximum[h], sum[h]};
    float* const line = g.part_outputs + to * (2 * kCount) + 2 * (place.lane % 4);
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j)
      store_vector(line + 8 * j, Vector<float, 2>{{outputs[4 * j + 2 * h], outputs[4 * j + 2 * h + 1]}});
  }
  ptx::named_barrier_sync(kEpilogueBarrier + place.warpgroup, 128);
  if (threadIdx.x % 128 == 0) {
    unsigned* const counter = g.counters + static_cast<std::int64_t>(tile.index) * kConsumers + place.warpgroup;
    __threadfence();
    const bool last = atomicAdd(counter, 1u) == g.parts.divisor - 1;
    if (last) *counter = 0;
    *flag = last;
    __threadfence();
  }
  ptx::named_barrier_sync(kEpilogueBarrier + place.warpgroup, 128);
  if (*flag) merge(64 * place.warpgroup);
}

}  // namespace xgemm::attention
