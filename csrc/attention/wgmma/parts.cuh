// Parts of the keys: each item leaves its rows' maxima, sums and unnormalised outputs in memory; the warpgroup that comes last
// merges them, in order. So a row's bits do not depend on who computed which part when.
//
// Floor: reads and writes 4 value_size + 8 bytes a row and part, against 4 (D + Dv) part_keys bytes of keys and values a tile.
#pragma once
#include "attention/wgmma/epilogue.cuh"
#include "device/vector.cuh"

namespace xgemm::attention {

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
