// An additive mask that TMA has loaded to a slot of shared memory.
#pragma once
#include "attention/tiles/mask.cuh"
#include "attention/wgmma/tiles.h"
#include "device/ptx/mma.cuh"

namespace xgemm::attention {

/// Where ldmatrix finds this lane's row of a mask in a slot with the warpgroup's 64 rows (Tile::mask_swizzled); several
/// heads may share a row of the mask. The first chunk of 16 bytes is added.
template <int kIndex>
__device__ __forceinline__ std::uint32_t mask_slot_row(int slot_rows) {
  constexpr Tile kTile = kWgmmaTiles[kIndex];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int row = (16 * warp + lane % 16) * slot_rows / 64;
  return row * 2 * kTile.mask_columns() + 16 * (kTile.mask_swizzled() ? lane / 16 ^ row % 8 : lane / 16);
}

/// Scales the scores and adds a tile of a mask of T, in natural units as TileMask does. `row`: of the slot, mask_slot_row().
/// ldmatrix has the layout of the accumulators.
template <class T, int kIndex>
__device__ __forceinline__ void add_mask_slot(float (&scores)[kWgmmaTiles[kIndex].keys / 2], std::uint32_t row, float scale) {
  constexpr Tile kTile = kWgmmaTiles[kIndex];
#pragma unroll
  for (int k = 0; k < kTile.keys / 16; ++k) {
    std::uint32_t matrices[4];
    ptx::ldmatrix(matrices, kTile.mask_swizzled() ? (row ^ 32 * (k % 4)) + k / 4 * 128 * kTile.mask_columns() : row + 32 * k);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpack_pair<T>(matrices[i]);
      float* const score = scores + 8 * k + 2 * i;
      score[0] = fmaf(score[0], scale, pair.x), score[1] = fmaf(score[1], scale, pair.y);
    }
  }
}

}  // namespace xgemm::attention
