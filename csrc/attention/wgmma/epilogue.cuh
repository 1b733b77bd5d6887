// Stores the outputs of a warpgroup's 64 rows: normalised, rounded, through the queries' slot in shared memory by TMA.
#pragma once
#include "attention/tiles/finish.cuh"
#include "attention/tiles/sequences.cuh"
#include "attention/tiles/softmax.cuh"
#include "attention/wgmma/shared.cuh"
#include "device/ptx/stmatrix.cuh"
#include "device/ptx/tma.cuh"
#include "device/ptx/warpgroup.cuh"

namespace xgemm::attention {

/// `slot`: the tile's queries, which nothing reads once all warps of the warpgroup are here. The warp's first lane has a
/// pending bulk group afterwards, which still reads `slot`.
template <class Element, int kIndex, Masking kMasking>
__device__ __forceinline__ void store_outputs(float (&outputs)[kWgmmaTiles[kIndex].value_size / 2],
                                              const OnlineSoftmax<kWgmmaTiles[kIndex].keys>& softmax, const TileArguments& g,
                                              const TileOf<kMasking>& tile, unsigned char* slot) {
  using S = Shared<kIndex, kMasking>;
  const Place place;
  float inverse[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int packed_row = tile.row + place.row(h);
    float maximum = softmax.maximum[h], sum = softmax.sum[h];
    inverse[h] = finish_row(g, tile, packed_row, maximum, sum);
    const bool exists = kMasking != Masking::sequences || place.row(h) < g.tile_rows;
    if (g.lse != nullptr && place.lane % 4 == 0 && exists) {
      const std::int64_t row = tile.output_row(g, packed_row);
      if (row >= 0) g.lse[row] = log_sum(maximum, sum, g.scale);
    }
  }

#pragma unroll
  for (int i = 0; i < S::kTile.value_size / 2; ++i)  // 0 if the row sees no key, even if a value is NaN
    outputs[i] = softmax.sum[i / 2 % 2] == 0.f ? 0.f : outputs[i] * inverse[i / 2 % 2];

  ptx::named_barrier_sync(kEpilogueBarrier + place.warpgroup, 128);
  unsigned char* const warps = slot + place.warp_row * Tile::kBlockBytes;
  const std::uint32_t row = ptx::shared_address(warps) + (place.lane % 16) * Tile::kBlockBytes;
#pragma unroll
  for (int k = 0; k < S::kTile.value_size / 16; ++k) {
    std::uint32_t fragment[4];
    to_fragment<Element>(fragment, outputs, k);
    const int chunk = (2 * k % 8 + place.lane / 16) ^ (place.lane % 8);  // of 16 bytes; lane % 8 is the row's swizzle
    ptx::store_matrices(row + k / 4 * S::kQueryBlock + 16 * chunk, fragment);
  }
  if constexpr (kMasking == Masking::sequences) {
    // TMA would store rows of the next sequence, too; and whole positions only.
    if (g.through_memory || g.pack.divide(tile.row + place.warp_row + 15) >= tile.sq) {
      __syncwarp();
      constexpr int kPieces = S::kTile.value_size / 8;
#pragma unroll 1
      for (int i = place.lane; i < 16 * kPieces; i += 32) {
        const int of_warp = i / kPieces, piece = i % kPieces, in_tile = place.warp_row + of_warp;
        const std::int64_t to = in_tile < g.tile_rows ? tile.output_row(g, tile.row + in_tile) : -1;
        if (to < 0 || 8 * piece >= g.dv) continue;
        const auto* const from = reinterpret_cast<const std::uint32_t*>(
            warps + piece / 8 * S::kQueryBlock + of_warp * Tile::kBlockBytes + 16 * (piece % 8 ^ of_warp % 8));
        store_vector(static_cast<std::uint32_t*>(g.out) + (g.out_rows.place(to) * g.dv + 8 * piece) / 2, load_vector<4>(from));
      }
      ptx::fence_async_shared();  // TMA refills the slot
      __syncwarp();
      return;
    }
  }
  ptx::fence_async_shared();
  __syncwarp();
  if (place.lane == 0) {
#pragma unroll
    for (int block = 0; block < S::kValueBlocks; ++block)
      ptx::tma_store(&g.output, warps + block * S::kQueryBlock, 64 * block, tile.head,
                     tile.first_position() + g.pack.divide(tile.row + place.warp_row), tile.inner, tile.outer);
    ptx::tma_store_commit();
  }
}

}  // namespace xgemm::attention
