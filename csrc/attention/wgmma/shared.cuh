// Shared memory of the tensor-core kernel, and how its operands lie there.
#pragma once
#include "attention/wgmma/tile.h"
#include "device/ptx/mbarrier.cuh"
#include "device/ptx/wgmma.cuh"

namespace xgemm::attention {

/// Every operand lies in blocks of 64 columns, rows of 128 bytes, swizzled. Queries and keys are K-major; values as they are in
/// memory, keys by columns, are an MN-major B.
template <int kIndex>
struct Shared {
  static constexpr WgmmaTile kTile = kWgmmaTiles[kIndex];
  static constexpr int kKeys = kTile.keys, kRows = kTile.rows();
  static constexpr int kQueryBlock = kRows * WgmmaTile::kBlockBytes, kKeyBlock = kKeys * WgmmaTile::kBlockBytes;
  static constexpr int kHeadBlocks = WgmmaTile::blocks(kTile.head_size), kValueBlocks = WgmmaTile::blocks(kTile.value_size);
  static constexpr int kConsumerWarps = 4 * kTile.consumers;
  using Query = ptx::OperandLayout<true, WgmmaTile::kBlockBytes, kQueryBlock>;
  using Key = ptx::OperandLayout<true, WgmmaTile::kBlockBytes, kKeyBlock>;
  using Value = ptx::OperandLayout<false, WgmmaTile::kBlockBytes, kKeyBlock>;
  static_assert(kQueryBlock % 1024 == 0 && kKeyBlock % 1024 == 0 && kKeys % 16 == 0);
  static_assert(kTile.shared_bytes() <= 227 * 1024);

  unsigned char *queries, *keys, *values;
  ptx::Barrier *query_full, *query_empty, *key_full, *key_empty, *value_full, *value_empty;
  unsigned* flags;  ///< one a consumer warpgroup

  __device__ __forceinline__ explicit Shared(unsigned char* memory) {
    queries = memory + ((1024 - (ptx::shared_address(memory) & 1023)) & 1023);
    keys = queries + kTile.query_slots * kTile.query_bytes();
    values = keys + kTile.stages * kTile.key_bytes();
    query_full = reinterpret_cast<ptx::Barrier*>(values + kTile.stages * kTile.value_bytes());
    query_empty = query_full + kTile.query_slots;
    key_full = query_empty + kTile.query_slots;
    key_empty = key_full + kTile.stages;
    value_full = key_empty + kTile.stages;
    value_empty = value_full + kTile.stages;
    flags = reinterpret_cast<unsigned*>(value_empty + kTile.stages);
  }

  /// By one thread; a CTA barrier follows.
  __device__ __forceinline__ void init_barriers() const {
    for (int s = 0; s < kTile.query_slots; ++s) {
      ptx::barrier_init(query_full + s, 1);
      ptx::barrier_init(query_empty + s, kConsumerWarps);
    }
    for (int s = 0; s < kTile.stages; ++s) {
      ptx::barrier_init(key_full + s, 1);
      ptx::barrier_init(key_empty + s, kConsumerWarps);
      ptx::barrier_init(value_full + s, 1);
      ptx::barrier_init(value_empty + s, kConsumerWarps);
    }
    ptx::fence_barrier_init();
  }
};

/// Barriers among the consumers; 0 is __syncthreads. One a warpgroup each.
enum NamedBarrier { kTurnBarrier = 1, kEpilogueBarrier = 4 };

}  // namespace xgemm::attention
