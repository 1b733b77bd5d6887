// Problem -> the one-launch fp32 kernel for small products, which computes in fp64 on tensor cores: sliced/kernel.cuh. Pure
// host code.
#pragma once
#include <array>
#include <optional>
#include <string_view>

#include "device/properties.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

enum class SlicedTile : std::uint8_t { t32x32, t32x64 };

/// A tile of sliced/kernel.cuh: the part of C that a warp, and so a block, computes.
struct SlicedTileInfo {
  std::string_view name;
  int rows, columns;    ///< of C
  int stages;           ///< slots of a warp's ring
  double round;         ///< cycles of an H200 for kSlicedWarps * kSlicedDepth of k (measured, docs/log/matmul.md)
  double round_single;  ///< the same if an operand is loaded one element at a time
  double fixed;         ///< a block's start and end
  double fixed_apart;
};
inline constexpr int kSlicedWarps = 8, kSlicedDepth = 16;  ///< warps of a block, k of a warp's step
inline constexpr int kSlicedMaxSplits = 8;                 ///< blocks of a cluster that share a tile's k
inline constexpr int kSlicedApart = 512;                   ///< k up to which warps may have tiles of their own
inline constexpr std::array<SlicedTileInfo, 2> kSlicedTiles{{
    {"sliced_32x32", 32, 32, 4, 1500, 1730, 360, 4100},
    {"sliced_32x64", 32, 64, 3, 2420, 3010, 2290, 7120},
}};
constexpr const SlicedTileInfo& info(SlicedTile t) { return kSlicedTiles[static_cast<std::size_t>(t)]; }

struct SlicedPlan {
  SlicedTile tile;
  std::int64_t tiles;   ///< of all batches
  std::int64_t splits;  ///< blocks of a cluster that share a tile's k; the order of additions depends on it and on K
  bool apart;           ///< short K: each warp of a block computes its own tile
  double seconds;       ///< predicted
};

/// Nothing if it does not apply: other GPUs and dtypes, "ieee", batch-invariant problems (splits depend on M), too large ones,
/// at most four rows or columns (gemv/plan.h). `forced`: a tile's name, that and "_apart", or "sliced" for either.
std::optional<SlicedPlan> plan_sliced(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

}  // namespace xgemm::matmul
