// Masks of the edges: keys that some rows of a tile see and others do not (causal, window, the last keys).
#pragma once
#include <cmath>

namespace xgemm::attention {

/// Sets the scores of keys outside [begin[h], end[h]) to -inf; h: row l / 4 + 8 h of the warp's. The accumulators are wgmma's
/// (device/ptx/wgmma.cuh), the tile's first key is `key`.
template <int kKeys>
__device__ __forceinline__ void mask_edges(float (&scores)[kKeys / 2], int key, const int (&begin)[2], const int (&end)[2]) {
  const int mine = key + 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int from = begin[h] - mine;
    const auto count = static_cast<unsigned>(max(end[h] - begin[h], 0));
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c)
        if (static_cast<unsigned>(8 * j + c - from) >= count) scores[4 * j + 2 * h + c] = -INFINITY;
  }
}

}  // namespace xgemm::attention
