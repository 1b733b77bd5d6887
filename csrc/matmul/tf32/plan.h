// Problem -> the fp32 kernel that multiplies in tf32 (tf32/kernel.cuh), for "high" and "medium". Pure host code.
#pragma once
#include <array>
#include <optional>
#include <string_view>

#include "device/properties.h"
#include "matmul/fp32_tiles/plan.h"

namespace xgemm::matmul {

inline constexpr int kTf32TileK = 32;  ///< k per k-block: 128 bytes
inline constexpr int kTf32Fan = 4;     ///< partial sums that one CTA adds

/// x lines of one operand by y lines of the other per CTA.
enum class Tf32Tile : std::uint8_t { t128x256x32, t128x128x32, t64x128x32, t64x128x64, t64x64x128 };
struct Tf32TileInfo {
  std::string_view name;
  int x, y;
  int blocks;    ///< k-blocks per slot
  int per_sm;    ///< CTAs per SM: one's products hide the other's start and end
  double block;  ///< cycles of an H200 under load for a k-block of an SM (measured, docs/log/matmul.md)
  double fixed;  ///< filling the pipeline, storing C
};
inline constexpr std::array<Tf32TileInfo, 5> kTf32Tiles{{
    {"tf32_128x256x32", 128, 256, 1, 1, 1250, 5750},  // large products: the least traffic
    {"tf32_128x128x32", 128, 128, 1, 1, 675, 3510},   // fewer tiles
    {"tf32_64x128x32", 64, 128, 1, 2, 454, 3180},     // many tiles, short K: limited by storing C
    {"tf32_64x128x64", 64, 128, 2, 1, 422, 2740},     // a weight's 64 lines by 128 rows
    {"tf32_64x64x128", 64, 64, 4, 1, 292, 1850},      // few rows, small outputs: limited by the hand-over of slots
}};
constexpr const Tf32TileInfo& info(Tf32Tile t) { return kTf32Tiles[static_cast<std::size_t>(t)]; }

/// a and b: copies of what TMA cannot load; the one of x may be MN-major, that of y is K-major. A block of K: a slot's.
struct Tf32Plan : Fp32TilesPlan {
  Tf32Tile tile;
  bool swap_ab;  ///< x are columns of B, y rows of A; else the reverse
};

/// Nothing if it does not apply: other GPUs, dtypes and precisions, batch-invariant problems (splits depend on M), gated ones,
/// prepared weights. If both operands are MN-major, one is packed along k.
std::optional<Tf32Plan> plan_tf32(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

}  // namespace xgemm::matmul
