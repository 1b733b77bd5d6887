// Problem -> tile and split on CUDA cores (simt/kernel.cuh), which can compute every problem. Pure host code: no CUDA, no
// torch, tested without a GPU.
//
// Order of additions. K is divided into chunks of `chunk` (a function of N and K). A chunk's products are added one after
// another by fused multiply-adds from zero; the chunks' sums are added in order. Every tile and every split does exactly this,
// so the bits of a row of the result depend on N, K and the dtype alone, never on M, the batch or the GPU.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "device/properties.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

/// A tile of the CUDA-core kernel (simt/kernel.cuh).
struct Tile {
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

enum class SimtTile : std::uint8_t { t128x128, t64x64, t16x128 };

struct SimtTileInfo {
  std::string_view name;
  Tile tile;
  double rate;  ///< share of the fp32 peak that the tile reaches when all slots are full (measured, docs/log/matmul.md)
};

inline constexpr std::array<SimtTileInfo, 3> kSimtTiles{{
    // Large problems: a thread's 16 x 8 sums need 24 shared floats for 128 multiply-adds, and two blocks of four warps hide each
    // other's barriers. Measured against 128x256 and 256x128 with one block of eight warps: 0.90, 0.86 and 0.84 of cuBLAS.
    {"simt_128x128", {128, 128, 8, 2, 2, 4, 8, 2}, 0.68},
    // Small problems: enough blocks for every SM. The largest tile whose fp64 sums fit in registers.
    {"simt_64x64", {64, 64, 16, 2, 2, 8, 4, 4}, 0.42},
    // Few rows: reads B once; M = 1 included.
    {"simt_16x128", {16, 128, 32, 1, 4, 4, 8, 3}, 0.27},
}};

constexpr const SimtTileInfo& info(SimtTile t) { return kSimtTiles[static_cast<std::size_t>(t)]; }

struct SimtPlan {
  SimtTile tile;
  std::int64_t chunk;   ///< k-length whose products are added one after another
  std::int64_t chunks;  ///< ceil(k / chunk), at least 1
  std::int64_t splits;  ///< blocks that share a tile's chunks; more than 1: partial sums through the workspace
  std::int64_t workspace_bytes;
  bool vector;     ///< operands are loaded four elements at a time
  double seconds;  ///< predicted
};

/// The canonical chunk length: 64 for up to 512 columns, 128 for up to 1024, else 256 (all of K up to 512), and longer where
/// there would be more than 32 chunks. Short chunks are more exact and give small outputs more blocks; large outputs pay for
/// each.
std::int64_t chunk_length(std::int64_t n, std::int64_t k);

/// Chunks of K, at least one.
std::int64_t chunk_count(std::int64_t n, std::int64_t k);

/// The plan of least predicted time on a GPU. `forced` (a tile's name, or "simt" for any) overrides the choice; other names, and
/// a tile that cannot do the problem, leave simt_64x64, which does every problem.
SimtPlan plan_simt(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

}  // namespace xgemm::matmul
