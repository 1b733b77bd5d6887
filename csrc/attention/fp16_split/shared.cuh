// Shared memory of kernel.cu and the layout of its operands.
#pragma once
#include "attention/fp16_split/tile.h"
#include "attention/wgmma/shared.cuh"

namespace xgemm::attention {

/// As in attention/wgmma: blocks of 64 columns, rows of 128 bytes, swizzled; the low part of the queries follows the high one.
template <int kIndex>
struct SplitShared {
  static constexpr Tile kTile = kSplitTiles[kIndex];
  static constexpr int kParts = split_parts(kIndex);
  static constexpr int kKeys = kTile.keys, kRows = kTile.rows();
  static constexpr int kQueryBlock = kRows * Tile::kBlockBytes, kKeyBlock = kKeys * Tile::kBlockBytes;
  static constexpr int kHeadBlocks = Tile::blocks(kTile.head_size), kValueBlocks = Tile::blocks(kTile.value_size);
  static constexpr int kQueryPart = kQueryBlock * kHeadBlocks;
  static constexpr int kSlotBytes = kKeyBlock * (kHeadBlocks > kValueBlocks ? kHeadBlocks : kValueBlocks);
  static constexpr int kConsumerWarps = 4 * kTile.consumers;
  static constexpr int kBarriers = 2 * (1 + kTile.stages);
  static constexpr int kScales = kKeys > kTile.value_size ? kKeys : kTile.value_size;  ///< bf16 scales per slot
  static constexpr int kBytes = kParts * kQueryPart + kTile.stages * (kSlotBytes + 2 * kScales) + 8 * kBarriers + kSwizzlePattern;
  using Query = ptx::OperandLayout<true, Tile::kBlockBytes, kQueryBlock>;
  using Key = ptx::OperandLayout<true, Tile::kBlockBytes, kKeyBlock>;
  using Value = ptx::OperandLayout<false, Tile::kBlockBytes, kKeyBlock>;
  static_assert(kTile.query_slots == 1 && kBytes <= 227 * 1024);

  unsigned char *queries, *slots;
  std::uint16_t* scales;  ///< [slot][kScales]: of a tile, with its high part
  Pipeline<1> query_slots;
  Pipeline<kTile.stages> ring;

  __device__ __forceinline__ explicit SplitShared(unsigned char* memory)
      : queries(memory + swizzle_padding(memory)),
        slots(queries + kParts * kQueryPart),
        scales(reinterpret_cast<std::uint16_t*>(slots + kTile.stages * kSlotBytes)),
        query_slots{reinterpret_cast<ptx::Barrier*>(scales + kTile.stages * kScales)},
        ring{query_slots.empty + 1} {}

  /// Called by one thread; a CTA barrier follows.
  __device__ __forceinline__ void init_barriers() const {
    query_slots.init(1, kConsumerWarps);
    ring.init(1, 32 * kConsumerWarps);  // every lane reads scales
    ptx::fence_barrier_init();
  }
  __device__ __forceinline__ unsigned char* slot(int i) const { return slots + i * kSlotBytes; }
};

}  // namespace xgemm::attention
