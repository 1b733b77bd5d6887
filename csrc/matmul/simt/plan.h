// The plan of tiles on CUDA cores (simt/kernel.cuh), which can compute every problem.
//
// Order of additions. K is divided into chunks of `chunk` (a function of N and K). A chunk's products are added one after
// another by fused multiply-adds from zero; the chunks' sums are added in order. Every tile and every split does exactly this,
// so the bits of a row of the result depend on N, K and the dtype alone, never on M, the batch or the GPU.
#pragma once
#include "device/dtype.h"
#include "matmul/order.h"
#include "matmul/plan/tiles.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

struct SimtPlan {
  SimtTile tile;
  std::int64_t chunk;   ///< k-length whose products are added one after another
  std::int64_t chunks;  ///< ceil(k / chunk), at least 1
  std::int64_t splits;  ///< blocks that share a tile's chunks; more than 1: partial sums through the workspace
  std::int64_t workspace_bytes;
  bool vector;     ///< operands are loaded four elements at a time
  double seconds;  ///< predicted
};

/// How the CTA of a tile divides it among its threads.
struct SimtShape {
  int bm, bn, bk;        ///< rows, columns and k-depth of a block's tile
  int warps_m, warps_n;  ///< the block's warps over the tile
  int lanes_m, lanes_n;  ///< a warp's lanes over its part
  int blocks_per_sm;     ///< resident blocks that registers and shared memory are budgeted for
  constexpr int threads() const { return warps_m * warps_n * 32; }
  constexpr int tm() const { return bm / warps_m / lanes_m; }  ///< rows per thread
  constexpr int tn() const { return bn / warps_n / lanes_n; }
  /// Shared memory of a block: two buffers of both tiles, lines padded by 4, and the sums of finished chunks.
  constexpr int shared_bytes(int accumulator_bytes) const { return accumulator_bytes * (2 * bk * (bm + 4 + bn + 4) + bm * bn); }
};

/// Is the tile compiled for a type? fp64's sums of the large one do not fit in registers.
constexpr bool has_instance(SimtTile tile, DType type) { return type == DType::f32 || tile != SimtTile::t128x128; }

/// A thread of the large tile has 16 x 8 sums, which need 24 shared floats for 128 multiply-adds, and two blocks of four warps
/// hide each other's barriers. Measured against 128x256 and 256x128 with one block of eight warps: 0.90, 0.86 and 0.84 of
/// cuBLAS. The middle one is the largest tile whose fp64 sums fit in registers.
constexpr SimtShape shape(SimtTile tile) {
  const TileInfo& t = info(tile);
  switch (tile) {
    case SimtTile::t128x128: return {t.m, t.n, 8, 2, 2, 4, 8, t.per_sm};
    case SimtTile::t64x64: return {t.m, t.n, 16, 2, 2, 8, 4, t.per_sm};
    default: return {t.m, t.n, 32, 1, 4, 4, 8, t.per_sm};
  }
}

}  // namespace xgemm::matmul
