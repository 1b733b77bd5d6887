// Orders of additions: how K is divided, as functions of N (or the lines of a large operand) and K alone. Pure host code.
#pragma once
#include <cstdint>

namespace xgemm::matmul {

/// The canonical chunk length: 64 for up to 512 columns, 128 for up to 1024, else 256 (all of K up to 512), and longer where
/// there would be more than 32 chunks. Short chunks are more exact and give small outputs more blocks; large outputs pay for
/// each.
std::int64_t chunk_length(std::int64_t n, std::int64_t k);

/// Chunks of K, at least one.
std::int64_t chunk_count(std::int64_t n, std::int64_t k);

inline constexpr int kFp64TileK = 16;  ///< k of a k-block of fp64_mma, and of an mma
/// k-blocks of a segment of fp64_mma.
std::int64_t fp64_segment(std::int64_t n, std::int64_t k);

inline constexpr int kWgmmaTileK = 64;    ///< k of a k-block
inline constexpr int kMaxCluster = 8;     ///< CTAs of a cluster
inline constexpr int kMaxSplits = 128;    ///< of K
inline constexpr int kSplitMultiple = 4;  ///< k-blocks that a split's length is a multiple of: what any slot holds

/// k-blocks of a split of wgmma.
std::int64_t split_blocks(std::int64_t k, std::int64_t splits);

/// Batch-invariant half precision: splits of K, more than one if N is small, so that few tiles still fill the GPU.
std::int64_t invariant_splits(std::int64_t n, std::int64_t k);

/// Warps of a block of gemv/dot.cu: at least; and at most, if they share a line.
inline constexpr int kDotBlockWarps = 4, kDotMaxWarps = 16;

/// Warps that share a line of dot's large operand, a power of two: enough that all lines' warps fill a large GPU, if each lane
/// has work, and that none has more than 8192 of k. Part of the order of additions.
int dot_warps(std::int64_t lines, std::int64_t k);

/// Up to this K, a line of dot's large operand may have less than a warp: dot_lanes(k) lanes, for a few loads of each.
inline constexpr std::int64_t kDotShort = 256;
int dot_lanes(std::int64_t k);

/// gemv/sweep.cu: most strips of k (and so warps) of a block, its columns, and k of a warp's step.
inline constexpr int kSweepStrips = 16, kSweepColumns = 128, kSweepDepth = 8, kSweepMaxSplits = 8;
inline constexpr int kSweepExact = 256;  ///< up to this k, a sum may have so few products that each one's rounding shows

/// gemv/sweep.cu: blocks that share a line's k: a function of the lines and of K.
std::int64_t sweep_splits(std::int64_t lines, std::int64_t k);

}  // namespace xgemm::matmul
