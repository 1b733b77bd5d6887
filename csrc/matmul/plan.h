// Problem -> kernel, tile and split. Pure host code: no CUDA, no torch, tested without a GPU.
//
// Order of additions. K is cut in chunks of `chunk` (a function of K alone), each summed from zero; the chunks' sums are added in order.
// Within a chunk the kernels of a family (gemv and simt_*: fused multiply-adds one after another; tf32x3_*: kernels/tf32x3.cuh) all
// do the same, whatever the tile or the split, so the bits of a row depend on K, the dtype and the family alone. For fp32 the family
// depends on M, unless the problem is batch_invariant; the other dtypes have one.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "device/properties.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

/// A tile of the CUDA-core kernel (kernels/simt.cuh). The one place where tile sizes are written.
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

enum class Kernel : std::uint8_t { simt_128x128, simt_64x64, simt_16x128, tf32x3_64x64, tf32x3_16x128, gemv };
inline constexpr int kKernels = 5;  ///< rows of the table of tiles; gemv has none

/// Rows for which a batch-invariant problem's kernels are chosen.
inline constexpr std::int64_t kManyRows = 4096;

/// Rows or columns that kernels/gemv.cuh takes, and the chunks whose sums a block of it can hold.
inline constexpr std::int64_t kGemvLines = 4, kGemvMaxChunks = 32;

struct KernelInfo {
  std::string_view name;
  Tile tile;
  double rate;  ///< share of the fp32 peak that the tile reaches when all slots are full (measured, docs/log/matmul.md)
};

inline constexpr std::array<KernelInfo, kKernels> kKernelTable{{
    // Large problems: a thread's 16 x 8 sums need 24 shared floats for 128 multiply-adds, and two blocks of four warps hide each
    // other's barriers. Measured against 128x256 and 256x128 with one block of eight warps: 0.90, 0.86 and 0.84 of cuBLAS.
    {"simt_128x128", {128, 128, 8, 2, 2, 4, 8, 2}, 0.68},
    // Small problems: enough blocks to use every multiprocessor. The largest tile whose fp64 sums fit in registers.
    {"simt_64x64", {64, 64, 16, 2, 2, 8, 4, 4}, 0.42},
    // Few rows: reads B once; M = 1 included.
    {"simt_16x128", {16, 128, 32, 1, 4, 4, 8, 3}, 0.27},
    // fp32 on tensor cores without a pass over the operands (kernels/tf32x3.cuh): small or narrow problems, and few rows.
    {"tf32x3_64x64", {64, 64, 32, 2, 2, 8, 4, 2}, 0.95},
    {"tf32x3_16x128", {16, 128, 32, 1, 4, 8, 4, 3}, 0.60},
}};

constexpr bool is_tf32x3(Kernel k) { return k == Kernel::tf32x3_64x64 || k == Kernel::tf32x3_16x128; }
inline constexpr std::int64_t kTf32MinK = 64;  ///< below, a product's own error (2^-22) shows beside SGEMM's sum

constexpr const KernelInfo& info(Kernel k) { return kKernelTable[static_cast<std::size_t>(k)]; }

struct Plan {
  Kernel kernel;
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

/// The canonical chunk length: all of K up to 512, then 256, and longer from 8192 on so that there are never more than 32 chunks.
std::int64_t chunk_length(std::int64_t k);

std::string_view name(Kernel k);  ///< of every kernel, gemv included

/// The plan of least predicted time on a GPU. `forced` (a kernel's name) overrides the choice; a kernel that cannot do
/// the problem leaves simt_64x64, which does every problem.
Plan make_plan(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

}  // namespace xgemm::matmul
