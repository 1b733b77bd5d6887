// Problem -> the fp32 kernel that multiplies in tf32 (tf32/kernel.cuh), for "high" and "medium". Pure host code.
#pragma once
#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "device/properties.h"
#include "matmul/tensor_operand.h"

namespace xgemm::matmul {

inline constexpr int kTf32TileK = 32;  ///< k per k-block: 128 bytes
inline constexpr int kTf32Fan = 4;     ///< partial sums that one CTA adds

/// x lines of one operand by y lines of the other per CTA.
enum class Tf32Tile : std::uint8_t { t128x256x32, t128x128x32, t64x128x64, t64x64x128 };
struct Tf32TileInfo {
  std::string_view name;
  int x, y;
  int blocks;    ///< k-blocks per slot
  double block;  ///< cycles of an H200 under load for a k-block (measured, docs/log/matmul.md)
  double fixed;  ///< filling the pipeline, storing C
};
inline constexpr std::array<Tf32TileInfo, 4> kTf32Tiles{{
    {"tf32_128x256x32", 128, 256, 1, 1250, 5750},  // large products: the least traffic
    {"tf32_128x128x32", 128, 128, 1, 675, 3510},   // fewer tiles
    {"tf32_64x128x64", 64, 128, 2, 422, 2740},     // a weight's 64 lines by 128 rows
    {"tf32_64x64x128", 64, 64, 4, 292, 1850},      // few rows, small outputs: limited by the hand-over of slots
}};
constexpr const Tf32TileInfo& info(Tf32Tile t) { return kTf32Tiles[static_cast<std::size_t>(t)]; }

/// a and b: copies of what TMA cannot load; the one of x may be MN-major, that of y is K-major. A block of K: a slot's.
struct Tf32Plan {
  Tf32Tile tile;
  bool swap_ab;  ///< x are columns of B, y rows of A; else the reverse
  TensorOperand a, b;
  std::int64_t tiles_x, tiles_y;  ///< of C of a batch
  std::int64_t blocks;            ///< of K: what a tile's main loop adds at a time
  std::int64_t splits;            ///< of K, `split_blocks` blocks and one CTA each; their sums are added in order
  std::int64_t split_blocks;
  std::int64_t ctas;             ///< tiles times splits; at most as many as run at once
  std::int64_t partial_bytes;    ///< partial sums of splits
  std::int64_t workspace_bytes;  ///< copies of operands
  std::int64_t counter_bytes;    ///< zeros before and after the launch
  double seconds;                ///< predicted

  /// Cuts K of all `tiles` in up to `wanted` splits for `slots` CTAs at once. Returns how many items the busiest CTA has.
  std::int64_t cut(std::int64_t tiles, std::int64_t wanted, std::int64_t slots) {
    split_blocks = ceil_div(blocks, wanted), splits = ceil_div(blocks, split_blocks);
    ctas = std::min(slots, tiles * splits);
    return ceil_div(tiles * splits, ctas);
  }
};

/// Nothing if it does not apply: other GPUs, dtypes and precisions, batch-invariant problems (splits depend on M), gated ones,
/// prepared weights. If both operands are MN-major, one is packed along k.
std::optional<Tf32Plan> plan_tf32(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

}  // namespace xgemm::matmul
