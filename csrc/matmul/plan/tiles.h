// Every tile of every family with its costs: the one table of sizes.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace xgemm::matmul {

/// A tile of C that one CTA computes, and its costs: microseconds of an H200 under load, fitted as machine.h says.
struct TileInfo {
  std::string_view name;
  int m, n;      ///< rows and columns of C (tf32: lines of one operand and of the other)
  int k;         ///< of a k-block: what a slot of the main loop holds
  int per_sm;    ///< CTAs that an SM can run at once
  double start;  ///< of a CTA: everything but its k-blocks
  double block;  ///< a k-block, if the CTA is alone on its SM
  double more;   ///< a k-block of each of several CTAs of an SM; as `block` where it is left out
  constexpr TileInfo(std::string_view name, int m, int n, int k, int per_sm, double start = 0, double block = 0, double more = 0)
      : name(name), m(m), n(n), k(k), per_sm(per_sm), start(start), block(block), more(more > 0 ? more : block) {}
  constexpr void slow_down(double times) { block *= times, more *= times; }
};
template <std::size_t kCount>
using Tiles = std::array<TileInfo, kCount>;

// Tiles of wgmma: a k-block takes the tensor cores' time (operations a cycle and SM, megahertz) and the hand-over of its slot; a
// CTA's start and end take longer the more it stores.
inline constexpr double kHalfHandOver = 0.0155, kHalfStart = 0.68, kHalfElement = 2.5e-5;
inline constexpr double kTf32HandOver = 0.0908, kTf32Start = 0.763, kTf32Element = 9.86e-5;
constexpr TileInfo half_tile(std::string_view name, int m, int n, int k) {
  return {name, m, n, k, 1, kHalfStart + kHalfElement * m * n, 2.0 * m * n * k / (4096 * 1800) + kHalfHandOver};
}
constexpr TileInfo tf32_tile(std::string_view name, int m, int n, int k) {
  return {name, m, n, k, 1, kTf32Start + kTf32Element * m * n, 2.0 * m * n * k / (2048 * 1850) + kTf32HandOver * k / 32};
}

/// CUDA cores, fp32; fp64 takes twice as long.
enum class SimtTile : std::uint8_t { t128x128, t64x64, t16x128 };
inline constexpr Tiles<3> kSimtTiles{{
    {"simt_128x128", 128, 128, 16, 2, 5.86, 1.8},       // large products
    {"simt_64x64", 64, 64, 16, 4, 0.261, 1.96, 0.775},  // small products: enough blocks for every SM
    {"simt_16x128", 16, 128, 16, 3, 0.109, 1, 0.501},   // few rows: reads B once
}};

/// fp32 computed in fp64: eight warps share a tile's k; or, where tiles are many, each has one of its own.
enum class SlicedTile : std::uint8_t { t32x32, t32x64 };
inline constexpr Tiles<4> kSlicedTiles{{
    {"sliced_32x32", 32, 32, 128, 1, 0.878, 0.857},
    {"sliced_32x64", 32, 64, 128, 1, 1.9, 1.38},
    {"sliced_32x32_apart", 32, 32, 16, 3, 1.06, 0.574, 0.336},
    {"sliced_32x64_apart", 32, 64, 16, 2, 2.14, 0.98, 0.624},
}};

/// fp64 on tensor cores (docs/log/matmul.md).
enum class Fp64Tile : std::uint8_t { t64x128, t64x64, t64x32, t16x64 };
inline constexpr Tiles<4> kFp64Tiles{{
    {"fp64_64x128", 64, 128, 16, 2, 1.16, 0.857, 0.592},  // large products, batches
    {"fp64_64x64", 64, 64, 16, 2, 1.06, 0.453, 0.305},    // few rows or tiles
    {"fp64_64x32", 64, 32, 16, 3, 0.485, 0.277, 0.182},   // few columns
    {"fp64_16x64", 16, 64, 16, 3, 0.258, 0.2, 0.123},     // few rows, small products
}};

/// mma.sync: half precision, then fp32 in TF32.
enum class MmaTile : std::uint8_t { t16x64, t64x64, tf32_64x64, tf32_128x64, tf32_64x128 };
inline constexpr Tiles<5> kMmaTiles{{
    {"mma_16x64", 16, 64, 64, 4, 0.295, 0.199, 0.169},  // few rows
    {"mma_64x64", 64, 64, 64, 4, 0.427, 0.373, 0.222},
    {"mma_tf32_64x64", 64, 64, 32, 3, 0.379, 0.363, 0.291},  // few rows or columns, one wave
    {"mma_tf32_128x64", 128, 64, 32, 2, 1.09, 0.49, 0.42},   // short K, batches
    {"mma_tf32_64x128", 64, 128, 32, 2, 1.32, 0.485, 0.44},  // a large B
}};
constexpr bool is_tf32(MmaTile t) { return t >= MmaTile::tf32_64x64; }

/// mma.sync on 16-bit operands, packed or split where they must be (mma/large.cuh); costs by the device's rates (candidates.cpp).
enum class LargeTile : std::uint8_t { t128x256, t128x128, t64x64, x2_128x128, x2_64x64 };
inline constexpr Tiles<5> kLargeTiles{{
    {"large_128x256", 128, 256, 64, 1},     // the least shared-memory and L2 traffic per product
    {"large_128x128", 128, 128, 64, 1},     // fewer columns
    {"large_64x64", 64, 64, 64, 3},         // few tiles
    {"large_x2_128x128", 128, 128, 32, 1},  // fp32 in two parts
    {"large_x2_64x64", 64, 64, 32, 1},      // the same, few tiles
}};
constexpr bool has_two_parts(LargeTile t) { return t >= LargeTile::x2_128x128; }

/// wgmma in TF32.
enum class Tf32Tile : std::uint8_t { t128x256x32, t128x128x32, t64x128x64, t64x64x128 };
inline constexpr Tiles<4> kTf32Tiles{{
    tf32_tile("tf32_128x256x32", 128, 256, 32),  // large products: the least traffic
    tf32_tile("tf32_128x128x32", 128, 128, 32),  // fewer tiles
    tf32_tile("tf32_64x128x64", 64, 128, 64),    // a weight's 64 lines by 128 rows
    tf32_tile("tf32_64x64x128", 64, 64, 128),    // few rows, small outputs
}};

/// wgmma on three bf16 parts.
inline constexpr Tiles<1> kBf16x3Tiles{{
    {"bf16x3_64x128", 64, 128, 64, 1, 2.38, 1.88},
}};

/// wgmma on 16-bit operands. A tile of 128 columns or more may have fewer, but more than half, so that tiles fill whole waves.
enum class WgmmaTile : std::uint8_t { t128x256, t128x128, t64x128, t64x64, t64x32 };
inline constexpr Tiles<5> kWgmmaTiles{{
    half_tile("wgmma_128x256", 128, 256, 64),  // the least shared-memory and L2 traffic per product
    half_tile("wgmma_128x128", 128, 128, 64),  // fewer columns, or fp32: room for the promoted sums
    half_tile("wgmma_64x128", 64, 128, 128),   // half precision: too few tiles of 128 rows
    half_tile("wgmma_64x64", 64, 64, 128),     // few rows: limited by reading B; smaller products
    half_tile("wgmma_64x32", 64, 32, 128),     // half precision, a K-major B
}};

constexpr const TileInfo& info(SimtTile t) { return kSimtTiles[static_cast<std::size_t>(t)]; }
constexpr const TileInfo& info(SlicedTile t) { return kSlicedTiles[static_cast<std::size_t>(t)]; }
constexpr const TileInfo& info(Fp64Tile t) { return kFp64Tiles[static_cast<std::size_t>(t)]; }
constexpr const TileInfo& info(MmaTile t) { return kMmaTiles[static_cast<std::size_t>(t)]; }
constexpr const TileInfo& info(LargeTile t) { return kLargeTiles[static_cast<std::size_t>(t)]; }
constexpr int large_slot_bytes(LargeTile t, int parts) { return 2 * parts * info(t).k * (info(t).m + info(t).n); }
constexpr const TileInfo& info(Tf32Tile t) { return kTf32Tiles[static_cast<std::size_t>(t)]; }
constexpr const TileInfo& info(WgmmaTile t) { return kWgmmaTiles[static_cast<std::size_t>(t)]; }

}  // namespace xgemm::matmul
