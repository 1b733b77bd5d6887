// tf32: the kernel's configuration, its arguments, its shared memory, and which tiles a CTA takes.
#pragma once
#include <cuda.h>

#include "device/shared_memory.cuh"
#include "device/tile_order.cuh"
#include "matmul/tf32/plan.h"

namespace xgemm::matmul {

/// Compile-time choices of one instantiation: the kernel's parameter is a type with this as its member kValue.
struct Tf32Config {
  Tf32Tile tile;
  bool k_major_x;
  constexpr int x() const { return info(tile).x; }
  constexpr int y() const { return info(tile).y; }
  constexpr int blocks() const { return info(tile).blocks; }
  constexpr int per_sm() const { return info(tile).per_sm; }
  constexpr int warpgroups() const { return x() / 64; }
  /// Two consumer warpgroups take registers from a producer warpgroup; one consumer has a single producer warp.
  constexpr bool lends() const { return warpgroups() > 1; }
  constexpr int threads() const { return 128 * warpgroups() + (lends() ? 128 : 32); }
};

struct Tf32Arguments {
  CUtensorMap x, y;  ///< dims (contiguous, other, batch); boxes of 32 by kX or kY lines (K-major) or by a slot's k
  Problem problem;
  bool swapped;                    ///< x are columns of C
  bool plain;                      ///< nothing but alpha and bias in the epilogue
  int batch_step_x, batch_step_y;  ///< 0: one matrix for all batches
  int slot_bytes;                  ///< that TMA loads into a slot: no lines past the last
  unsigned tiles_x, tiles_y;       ///< of a batch
  int last_x, last_y;              ///< largest first lines of a tile (Edges in kernel.cuh)
  unsigned items, splits;          ///< tiles times `splits`; with more than one split, as many CTAs as items
  unsigned blocks, split_blocks;   ///< slots of K, and of a split
  unsigned* counters;              ///< [level][CTA][warpgroup]
  float* partials;                 ///< [CTA][warpgroup][quad of a thread's sums][thread]
};

namespace tf32_detail {

template <class Config>
struct Shared {
  static constexpr Tf32Config kConfig = Config::kValue;
  static constexpr int kDepth = kTf32TileK * kConfig.blocks();  // k of a slot
  static constexpr int kBytesX = kConfig.x() * kDepth * 4, kBytesY = kConfig.y() * kDepth * 4, kSlotBytes = kBytesX + kBytesY;
  static constexpr int kWarps = 4 * kConfig.warpgroups();
  static constexpr int kStage = 640;  // floats of a warp's sums on their way to C
  static constexpr int kRest = kWarps * kStage * 4 + kSwizzlePattern + 256 /* barriers, flags */;
  static constexpr int kRoom = (kConfig.per_sm() == 1 ? 227 : 113) * 1024;
  static constexpr int kSlots = (kRoom - kRest) / kSlotBytes < 8 ? (kRoom - kRest) / kSlotBytes : 8;
  static constexpr int kBytes = kRest + kSlots * kSlotBytes;
  static_assert(kSlots >= 3);
};

/// One of the CTA's items: a tile, or a split of one.
template <class Config>
struct Item {
  int x, y, batch;  ///< the tile's first lines
  int block, end;   ///< slots of K
  unsigned split;
  __device__ __forceinline__ Item(const Tf32Arguments& g, unsigned item) {
    const unsigned tile = g.splits == 1 ? item : item / g.splits;
    split = item - tile * g.splits;
    block = static_cast<int>(split * g.split_blocks);
    end = static_cast<int>(min(g.blocks, (split + 1) * g.split_blocks));
    constexpr unsigned kGroup = Config::kValue.x() == Config::kValue.y() ? 12 : 16;
    const TilePlace at = tile_at<kGroup>(tile, g.tiles_x, g.tiles_y);
    x = min(static_cast<int>(at.row) * Config::kValue.x(), g.last_x);
    y = min(static_cast<int>(at.column) * Config::kValue.y(), g.last_y);
    batch = static_cast<int>(at.batch);
  }
};

}  // namespace tf32_detail

}  // namespace xgemm::matmul
