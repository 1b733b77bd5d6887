// Shared memory of the tensor-core kernel and the layout of its operands.
#pragma once
#include "attention/wgmma/tiles.h"
#include "device/pipeline.cuh"
#include "device/ptx/wgmma.cuh"
#include "device/shared_memory.cuh"

namespace xgemm::attention {

/// Every operand consists of blocks of 64 columns, rows of 128 bytes, swizzled. Queries and keys are K-major; values, keys by
/// columns as in memory, are an MN-major B. Masks: Tile::mask_swizzled().
template <int kIndex, Masking kMasking>
struct Shared {
  static constexpr Tile kTile = kWgmmaTiles[kIndex];
  static constexpr int kKeys = kTile.keys, kRows = kTile.rows();
  static constexpr int kQueryBlock = kRows * Tile::kBlockBytes, kKeyBlock = kKeys * Tile::kBlockBytes;
  static constexpr int kHeadBlocks = Tile::blocks(kTile.head_size), kValueBlocks = Tile::blocks(kTile.value_size);
  static constexpr int kConsumerWarps = 4 * kTile.consumers;
  static constexpr int kMaskSlots = kTile.mask_slots(kMasking);
  using Query = ptx::OperandLayout<true, Tile::kBlockBytes, kQueryBlock>;
  using Key = ptx::OperandLayout<true, Tile::kBlockBytes, kKeyBlock>;
  using Value = ptx::OperandLayout<false, Tile::kBlockBytes, kKeyBlock>;
  static_assert(kQueryBlock % kSwizzlePattern == 0 && kKeyBlock % kSwizzlePattern == 0 && kKeys % 16 == 0);
  static_assert(kTile.shared_bytes(kMasking) <= 228 * 1024 / kTile.ctas - 1024);

  unsigned char *queries, *keys, *values;
  unsigned char* masks;  ///< [warpgroup][slot]
  Pipeline<kTile.query_slots> query_slots;
  Pipeline<kTile.stages> key_slots, value_slots;
  Pipeline<kItemSlots> item_slots;
  ptx::Barrier* mask_barriers;
  int* items;  ///< [slot]: the next item

  __device__ __forceinline__ explicit Shared(unsigned char* memory)
      : queries(memory),
        keys(queries + kTile.query_slots * kTile.query_bytes()),
        values(keys + kTile.stages * kTile.key_bytes()),
        masks(values + kTile.stages * kTile.value_bytes()),
        query_slots{reinterpret_cast<ptx::Barrier*>(masks + kTile.consumers * kMaskSlots * kTile.mask_bytes())},
        key_slots{query_slots.empty + kTile.query_slots},
        value_slots{key_slots.empty + kTile.stages},
        item_slots{value_slots.empty + kTile.stages},
        mask_barriers(item_slots.empty + kItemSlots),
        items(reinterpret_cast<int*>(mask_barriers + 2 * kTile.consumers * kMaskSlots)) {}

  /// A warpgroup's mask slots: it releases one while other warpgroups still read theirs.
  __device__ __forceinline__ Pipeline<kMaskSlots> mask_slots(int warpgroup) const {
    return {mask_barriers + 2 * kMaskSlots * warpgroup};
  }
  __device__ __forceinline__ unsigned char* mask(int warpgroup, int slot) const {
    return masks + (warpgroup * kMaskSlots + slot) * kTile.mask_bytes();
  }

  /// Called by one thread; a CTA barrier follows. The producer's TMA fills a slot; a slot is empty when every consumer warp has
  /// arrived.
  __device__ __forceinline__ void init_barriers() const {
    query_slots.init(1, kConsumerWarps);
    key_slots.init(1, kConsumerWarps);
    value_slots.init(1, kConsumerWarps);
    item_slots.init(1, kConsumerWarps);
    if constexpr (kMaskSlots > 0)
      for (int warpgroup = 0; warpgroup < kTile.consumers; ++warpgroup) mask_slots(warpgroup).init(1, 4);
    ptx::fence_barrier_init();
  }
};

/// Named barriers of the consumers, one per warpgroup each; 0 is __syncthreads.
enum NamedBarrier { kTurnBarrier = 1, kEpilogueBarrier = 4 };

}  // namespace xgemm::attention
