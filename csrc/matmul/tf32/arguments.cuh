// tf32: the kernel's configuration and its shared memory.
#pragma once
#include "matmul/fp32_tiles/arguments.cuh"
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

namespace tf32_detail {

template <class Config>
struct Shared : fp32_tiles::SharedRest<Config> {
  static constexpr Tf32Config kConfig = Config::kValue;
  static constexpr int kDepth = kTf32TileK * kConfig.blocks();  // k of a slot
  static constexpr int kBytesX = kConfig.x() * kDepth * 4, kBytesY = kConfig.y() * kDepth * 4, kSlotBytes = kBytesX + kBytesY;
  static constexpr int kRest = fp32_tiles::SharedRest<Config>::kRest, kRoom = (kConfig.per_sm() == 1 ? 227 : 113) * 1024;
  static constexpr int kSlots = (kRoom - kRest) / kSlotBytes < 8 ? (kRoom - kRest) / kSlotBytes : 8;
  static constexpr int kBytes = kRest + kSlots * kSlotBytes;
  static_assert(kSlots >= 3);
};

}  // namespace tf32_detail

}  // namespace xgemm::matmul
