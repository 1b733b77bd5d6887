// tf32: the kernel's configuration, its arguments and its shared memory, and which tiles a CTA takes.
#pragma once
#include <cuda.h>

#include "device/pipeline.cuh"
#include "device/shared_memory.cuh"
#include "device/tile_order.cuh"
#include "matmul/split_k/meeting.cuh"
#include "matmul/tf32/plan.h"

namespace xgemm::matmul {

/// Compile-time choices of one instantiation.
struct Tf32Config {
  Tf32Tile tile;
  bool k_major_x;
  constexpr int x() const { return info(tile).m; }
  constexpr int y() const { return info(tile).n; }
  constexpr int blocks() const { return info(tile).k / kTf32TileK; }
  constexpr int warpgroups() const { return x() / 64; }
  /// Two consumer warpgroups take registers from a producer warpgroup; one consumer has a single producer warp.
  constexpr bool lends() const { return warpgroups() > 1; }
  constexpr int threads() const { return 128 * warpgroups() + (lends() ? 128 : 32); }
};

/// x: rows of A, y: columns of B, or (`swapped`) the reverse.
struct Tf32Arguments {
  CUtensorMap x, y;  ///< dims (contiguous, other, batch and part)
  Problem problem;
  bool swapped;                    ///< x are columns of C
  bool plain;                      ///< nothing but alpha and bias in the epilogue
  int batch_step_x, batch_step_y;  ///< 0: one matrix for all batches
  int slot_bytes;                  ///< that TMA loads into a slot: no lines past the last
  unsigned tiles_x, tiles_y;       ///< of a batch
  int last_x, last_y;              ///< largest first lines of a tile
  unsigned items, splits;          ///< tiles times `splits`; with more than one split, as many CTAs as items
  unsigned blocks, split_blocks;   ///< blocks of K, and of a split
  Meeting* meetings;               ///< [tile][warpgroup]
  float* partials;                 ///< [CTA][warpgroup][row of its part of C][column]
};

namespace tf32_detail {

/// Shared memory of a CTA: slots, a warp's sums on their way to C (store.cuh), barriers and MeetingShares.
template <Tf32Config kConfig>
struct Shared {
  static constexpr int kWarps = 4 * kConfig.warpgroups();       ///< that multiply
  static constexpr int kStage = 640;                            ///< floats of a warp's stage
  static constexpr int kDepth = kTf32TileK * kConfig.blocks();  ///< k of a slot
  static constexpr int kBytesX = kConfig.x() * kDepth * 4, kBytesY = kConfig.y() * kDepth * 4, kSlotBytes = kBytesX + kBytesY;
  static constexpr int kRest = kWarps * kStage * 4 + kSwizzlePattern + 256 /* barriers, MeetingShares */, kRoom = 227 * 1024;
  static constexpr int kSlots = (kRoom - kRest) / kSlotBytes < 8 ? (kRoom - kRest) / kSlotBytes : 8;
  static constexpr int kBytes = kRest + kSlots * kSlotBytes;
  static_assert(kSlots >= 3);
};

/// One of the CTA's items: a tile, or a split of one.
template <Tf32Config kConfig>
struct Item {
  const Tf32Arguments& g;
  unsigned item;
  unsigned tile = g.splits == 1 ? item : item / g.splits, split = item - tile * g.splits;
  int block = static_cast<int>(split * g.split_blocks);  ///< blocks of K: from here to `end`
  int end = static_cast<int>(min(g.blocks, (split + 1) * g.split_blocks));
  TilePlace at = tile_at < kConfig.x() == kConfig.y() ? 12 : 16 > (tile, g.tiles_x, g.tiles_y);
  int x = min(static_cast<int>(at.row) * kConfig.x(), g.last_x);  ///< the tile's first lines
  int y = min(static_cast<int>(at.column) * kConfig.y(), g.last_y);
  int batch = static_cast<int>(at.batch);
};

}  // namespace tf32_detail

}  // namespace xgemm::matmul
