// Problem -> kernel, tile and split. Pure host code: no CUDA, no torch, tested without a GPU.
//
// Order of additions. K is cut in chunks of `chunk` (a function of N and K). A chunk's products are added one after another by
// fused multiply-adds from zero; the chunks' sums are added in order. Every kernel and every split but dot does exactly this (and
// gemv where it is exact, which batch-invariant problems are not), so
// the bits of a row of the result depend on N, K and the dtype alone, never on M, the batch or the GPU. dot (fp32, up to 4 rows
// or columns) has an order of its own, which depends on N and K; batch-invariant problems do not take it.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "device/properties.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

/// A tile of the CUDA-core kernel (simt/kernel.cuh). The one place where tile sizes are written.
struct Tile {
  int bm, bn, bk;        ///< rows, columns and k-depth of a block's tile
  int warps_m, warps_n;  ///< the block's warps over the tile
  int lanes_m, lanes_n;  ///< a warp's lanes over its part
  int blocks_per_sm;     ///< resident blocks that registers and shared memory are budgeted for
  constexpr int threads() const { return warps_m * warps_n * 32; }
  constexpr int tm() const { return bm / warps_m / lanes_m; }  ///< rows a thread
  constexpr int tn() const { return bn / warps_n / lanes_n; }
  /// Shared memory of a block: two buffers of both tiles, lines padded by 4, and the sums of finished chunks.
  constexpr int shared_bytes(int accumulator_bytes) const { return accumulator_bytes * (2 * bk * (bm + 4 + bn + 4) + bm * bn); }
};

enum class SimtKernel : std::uint8_t { simt_128x128, simt_64x64, simt_16x128, gemv, dot };
inline constexpr int kSimtTiles = 3;  ///< rows of the table of tiles; gemv and dot have none

/// Rows for which a batch-invariant problem's kernels are chosen.
inline constexpr std::int64_t kManyRows = 4096;

/// Rows or columns that gemv/gemv.cuh takes, and the chunks whose sums a block of it can hold.
inline constexpr std::int64_t kGemvLines = 4, kGemvMaxChunks = 32;

/// Does gemv/gemv.cuh add up beside what its additions round off? Its bits are then not those of the other kernels.
inline bool gemv_is_exact(const Problem& p) {
  return p.dtype == DType::f32 && p.precision == Precision::highest && !p.batch_invariant;
}

/// Warps of a block of gemv/dot.cuh: at least, and where they share a line at most.
inline constexpr int kDotBlockWarps = 4, kDotMaxWarps = 16;

struct SimtKernelInfo {
  std::string_view name;
  Tile tile;
  double rate;  ///< share of the fp32 peak that the tile reaches when all slots are full (measured, docs/log/matmul.md)
};

inline constexpr std::array<SimtKernelInfo, kSimtTiles> kSimtKernels{{
    // Large problems: a thread's 16 x 8 sums need 24 shared floats for 128 multiply-adds, and two blocks of four warps hide each
    // other's barriers. Measured against 128x256 and 256x128 with one block of eight warps: 0.90, 0.86 and 0.84 of cuBLAS.
    {"simt_128x128", {128, 128, 8, 2, 2, 4, 8, 2}, 0.68},
    // Small problems: enough blocks to use every multiprocessor. The largest tile whose fp64 sums fit in registers.
    {"simt_64x64", {64, 64, 16, 2, 2, 8, 4, 4}, 0.42},
    // Few rows: reads B once; M = 1 included.
    {"simt_16x128", {16, 128, 32, 1, 4, 4, 8, 3}, 0.27},
}};

constexpr const SimtKernelInfo& info(SimtKernel k) { return kSimtKernels[static_cast<std::size_t>(k)]; }

struct SimtPlan {
  SimtKernel kernel;
  std::int64_t chunk;   ///< k-length whose products are added in a row
  std::int64_t chunks;  ///< ceil(k / chunk), at least 1
  std::int64_t splits;  ///< blocks that share a tile's chunks; more than 1: partial sums through the workspace
  std::int64_t workspace_bytes;
  bool vector;     ///< operands are loaded four elements at a time
  double seconds;  ///< predicted
};

/// Do A and B's quads run along k (else along A's rows, B's columns)?
inline bool a_along_k(const Problem& p) { return p.a.col_stride == 1; }
inline bool b_along_k(const Problem& p) { return p.b.row_stride == 1; }

/// Is every quad of every batch of A (of B) one aligned access, wholly inside or outside the matrix?
bool a_is_vectorisable(const Problem& p);
bool b_is_vectorisable(const Problem& p);

/// The canonical chunk length: 64 for up to 512 columns, 128 for up to 1024, else 256 (all of K up to 512), and longer where
/// there would be more than 32 chunks. Short chunks are more exact and give small outputs more blocks; large outputs pay for
/// each.
std::int64_t chunk_length(std::int64_t n, std::int64_t k);

/// gemv/dot.cuh: is its large operand B (else A)?
inline bool dot_streams_b(const Problem& p) { return p.m <= kGemvLines && b_along_k(p); }

/// Warps that share a line of dot's large operand, a power of two: enough that all lines' warps fill a large GPU, as far as each
/// lane has work. A part of the order of additions.
int dot_warps(std::int64_t lines, std::int64_t k);

std::string_view name(SimtKernel k);  ///< of every kernel, gemv and dot included

/// The plan of least predicted time on a GPU. `forced` (a kernel's name, or "simt" for any) overrides the choice; a kernel that
/// cannot do the problem leaves simt_64x64, which does every problem.
SimtPlan plan_simt(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

}  // namespace xgemm::matmul
