// The plan of the one-launch fp32 kernel for small products, which computes in fp64 on tensor cores: sliced/sliced.cu.
#pragma once
#include "matmul/plan/tiles.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

inline constexpr int kSlicedWarps = 8, kSlicedDepth = 16;  ///< warps of a block, k of a warp's step
inline constexpr int kSlicedApartWarps = 4;  ///< of a block whose warps have tiles of their own: an SM has two or three
inline constexpr int kSlicedMaxSplits = 8;   ///< blocks of a cluster that share a tile's k

struct SlicedPlan {
  SlicedTile tile;
  std::int64_t tiles;   ///< of all batches
  std::int64_t splits;  ///< blocks of a cluster that share a tile's k; the order of additions depends on it and on K
  bool apart;           ///< each warp of a block computes its own tile
  double seconds;       ///< predicted
};

}  // namespace xgemm::matmul
