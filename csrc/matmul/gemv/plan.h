// Problem -> the one-launch fp32 kernels for small products and for few rows: sliced/kernel.cuh and gemv/sweep.cuh. Pure host
// code.
#pragma once
#include <array>
#include <optional>
#include <string_view>

#include "device/properties.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

enum class SmallKernel : std::uint8_t { sliced_32x32, sliced_32x64, sweep };

/// A tile of sliced/kernel.cuh: what a warp, and so a block, has of C. The one place where the sizes are written.
struct SlicedTile {
  std::string_view name;
  int rows, columns;    ///< of C
  int stages;           ///< slots of a warp's ring
  double round;         ///< cycles of an H200 for kSlicedWarps * kSlicedDepth of k (measured, docs/log/matmul.md)
  double round_single;  ///< the same where an operand is loaded an element at a time
  double fixed;         ///< a block's start and end
  double fixed_apart;
};
inline constexpr int kSlicedWarps = 8, kSlicedDepth = 16;  ///< warps of a block, k of a warp's step
inline constexpr int kSlicedMaxSplits = 8;                 ///< blocks of a cluster that share a tile's k
inline constexpr int kSlicedApart = 128;                   ///< k up to which warps may have tiles of their own
inline constexpr std::array<SlicedTile, 2> kSlicedTiles{{
    {"sliced_32x32", 32, 32, 4, 2050, 2600, 200, 3000},
    {"sliced_32x64", 32, 64, 3, 3300, 4000, 900, 3500},
}};
constexpr const SlicedTile& info(SmallKernel k) { return kSlicedTiles[static_cast<std::size_t>(k)]; }

/// gemv/sweep.cuh: warps of a block, its columns, and k of a warp's step.
inline constexpr int kSweepWarps = 16, kSweepColumns = 128, kSweepDepth = 8, kSweepMaxSplits = 8;
inline constexpr int kSweepExact = 256;  ///< k up to which a sum may be so few products that the rounding of each one shows

struct SmallPlan {
  SmallKernel kernel;
  std::int64_t tiles;   ///< of all batches
  std::int64_t splits;  ///< blocks, a cluster, that share a tile's k; the order of additions depends on it and on K
  bool apart;           ///< short K: a block's warps have a tile each, not a tile's k
  double seconds;       ///< predicted
};

std::string_view name(SmallKernel k);

/// Blocks that share a line's k in gemv/sweep.cuh: a function of the lines and of K.
std::int64_t sweep_splits(std::int64_t lines, std::int64_t k);

/// Nothing where no kernel applies: other dtypes and precisions, batch-invariant problems (the kernel depends on M), products too
/// large. `forced`: a kernel's name, or "sliced" for either tile.
std::optional<SmallPlan> plan_small(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

}  // namespace xgemm::matmul
