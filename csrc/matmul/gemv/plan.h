// Problem -> a kernel for at most four rows or columns, all on CUDA cores: gemv/gemv.cuh, gemv/dot.cuh or gemv/sweep.cuh. Pure
// host code.
//
// Order of additions. gemv: that of simt/plan.h, so that a row's bits are those of any tile (except with gemv_is_exact, which
// batch-invariant problems do not use). dot and sweep (fp32): orders of their own, which depend on N and K (with few columns:
// on M and K), the same for 1 to 4 rows; batch-invariant problems do not use them.
#pragma once
#include <optional>
#include <string_view>

#include "device/properties.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

enum class GemvKernel : std::uint8_t {
  gemv,  ///< every dtype and layout
  dot,   ///< fp32, the large operand along k
  sweep  ///< fp32, the large operand along its rows (B) or columns (A)
};
inline constexpr std::string_view kGemvKernels[] = {"gemv", "dot", "sweep"};
constexpr std::string_view name(GemvKernel k) { return kGemvKernels[static_cast<std::size_t>(k)]; }

/// Rows or columns that the kernels take, and the chunks whose sums a block of gemv/gemv.cuh can hold.
inline constexpr std::int64_t kGemvLines = 4, kGemvMaxChunks = 32;

/// Does gemv/gemv.cuh keep its additions' rounding errors? Its bits are then not those of the other kernels.
inline bool gemv_is_exact(const Problem& p) {
  return p.dtype == DType::f32 && p.precision == Precision::highest && !p.batch_invariant;
}

/// Warps of a block of gemv/dot.cuh: at least; and at most, if they share a line.
inline constexpr int kDotBlockWarps = 4, kDotMaxWarps = 16;

/// gemv/sweep.cuh: most strips of k (and so warps) of a block, its columns, and k of a warp's step.
inline constexpr int kSweepStrips = 16, kSweepColumns = 128, kSweepDepth = 8, kSweepMaxSplits = 8;
inline constexpr int kSweepExact = 256;  ///< up to this k, a sum may have so few products that each one's rounding shows

struct GemvPlan {
  GemvKernel kernel;
  std::int64_t chunk, chunks;  ///< gemv: as SimtPlan has them
  std::int64_t splits;         ///< gemv: blocks that share a tile's chunks; sweep: blocks of a cluster, which share a tile's k
  std::int64_t tiles;          ///< sweep: of all batches
  std::int64_t workspace_bytes;
  bool many;       ///< sweep: several blocks an SM, of half as many warps
  double seconds;  ///< predicted
};

/// gemv/dot.cuh: is its large operand B (else A)?
inline bool dot_streams_b(const Problem& p) { return p.m <= kGemvLines && b_along_k(p); }

/// Warps that share a line of dot's large operand, a power of two: enough that all lines' warps fill a large GPU, if each lane
/// has work. Part of the order of additions.
int dot_warps(std::int64_t lines, std::int64_t k);

/// Up to this K, a line of dot's large operand may have less than a warp: dot_lanes(k) lanes, for a few loads of each.
inline constexpr std::int64_t kDotShort = 256;
int dot_lanes(std::int64_t k);

/// Floats of a line of x that dot copies to shared memory if it is not along k: all elements of strided quads, and 16 bytes so
/// that lines begin in different banks. It does so if there is room for kGemvLines lines.
constexpr std::int64_t dot_pitch(std::int64_t k) { return (k + 127) / 128 * 128 + 4; }
inline constexpr std::int64_t kDotMaxStaged = 200 * 1024;
constexpr bool dot_stages(std::int64_t k) { return 4 * kGemvLines * dot_pitch(k) <= kDotMaxStaged; }

/// gemv/sweep.cuh: strips of k of a block, and blocks that share a line's k: functions of the lines and of K.
int sweep_strips(std::int64_t k);
std::int64_t sweep_splits(std::int64_t lines, std::int64_t k);

/// gemv or dot, which run on every GPU; nothing for more rows and columns. `forced`: one of their names, or "simt" for either.
std::optional<GemvPlan> plan_gemv(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

/// Nothing if it does not apply: other GPUs, dtypes and precisions, batch-invariant problems, too large ones, a large operand
/// that is contiguous along k. `forced`: "sweep".
std::optional<GemvPlan> plan_sweep(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

}  // namespace xgemm::matmul
