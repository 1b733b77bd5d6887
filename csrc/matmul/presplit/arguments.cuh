// presplit: the kernels' configuration, arguments and shared memory.
#pragma once
#include "matmul/fp32_tiles/arguments.cuh"
#include "matmul/presplit/plan.h"

namespace xgemm::matmul {

/// Compile-time choices of one instantiation: the kernel's parameter is a type with this as its member kValue.
struct PresplitConfig {
  PresplitTile tile;
  bool k_major_x = true;
  constexpr int x() const { return info(tile).x; }
  constexpr int y() const { return info(tile).y; }
  constexpr int warpgroups() const { return x() / 64; }  ///< that multiply
  constexpr int threads() const { return 128 * warpgroups() + 128; }
};

/// x: rows of A, y: columns of B. Maps: dims (k, line, batch and part); boxes of kSlotK by the tile's lines.
struct PresplitArguments : Fp32TilesArguments {
  const unsigned char *lost_x, *lost_y;  ///< [batch][unit of lines][unit of k]: has it a number that the parts do not represent?
  unsigned units_x, units_y;             ///< of lines
};

/// One operand of the pass.
struct SplitOperand {
  Operand operand;
  std::int64_t line_stride, k_stride;
  __nv_bfloat16* parts;  ///< [batch][part][line][ld]
  unsigned char* lost;   ///< as in PresplitArguments
  std::int64_t ld, plane;
  int lines, k;
  unsigned units;  ///< of lines
};

struct SplitPartsArguments {
  int batch_dims;  ///< as Problem's
  std::int64_t batch[kMaxBatchDims];
  SplitOperand operands[2];
  unsigned units_k;
  unsigned first;  ///< CTAs of the first operand; the others are the second's
};

namespace presplit {

inline constexpr int kSlotK = 32;  ///< k of a slot
inline constexpr int kSlotsOfBlock = kPresplitTileK / kSlotK;

template <class Config>
struct Shared : fp32_tiles::SharedRest<Config> {
  static constexpr PresplitConfig kConfig = Config::kValue;
  static constexpr int kPartX = kConfig.x() * kSlotK * 2, kPartY = kConfig.y() * kSlotK * 2;
  static constexpr int kSlotBytes = kPresplitParts * (kPartX + kPartY);
  static constexpr int kRest = fp32_tiles::SharedRest<Config>::kRest;
  static constexpr int kSlots = (227 * 1024 - kRest) / kSlotBytes;
  static constexpr int kBytes = kRest + kSlots * kSlotBytes;
  static_assert(kSlots >= 4);
};

}  // namespace presplit
}  // namespace xgemm::matmul
