// The plan of the kernels for at most four rows or columns on CUDA cores: gemv/gemv.cuh, gemv/dot.cu and gemv/sweep.cu; and of
// few outputs: gemv/outputs.cu.
//
// Order of additions. gemv: that of simt/plan.h, so that a row's bits are those of any tile (except with gemv_is_exact, which
// batch-invariant problems do not use). dot and sweep (fp32): orders of their own, which depend on N and K (with few columns:
// on M and K; dot's also on the alignment of its large operand), the same for 1 to 4 rows as far as dot_stages(K);
// batch-invariant problems do not use them; nor outputs, whose order depends on K and on how many CTAs share it.
#pragma once
#include "matmul/order.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

enum class GemvKernel : std::uint8_t {
  gemv,    ///< fp32 and fp64, every layout
  dot,     ///< fp32, the large operand along k
  sweep,   ///< fp32, the large operand along its rows (B) or columns (A)
  outputs  ///< few outputs, every dtype and layout
};

/// Rows or columns that the kernels take, and the chunks whose sums a block of gemv/gemv.cuh can hold.
inline constexpr std::int64_t kGemvLines = 4, kGemvMaxChunks = 32;

/// Does gemv/gemv.cuh keep its additions' rounding errors? Its bits are then not those of the other kernels.
inline bool gemv_is_exact(const Problem& p) {
  return p.dtype == DType::f32 && p.precision == Precision::highest && !p.batch_invariant;
}

struct GemvPlan {
  GemvKernel kernel;
  std::int64_t chunk, chunks;  ///< gemv: as SimtPlan has them
  std::int64_t splits;  ///< gemv: blocks that share a tile's chunks; sweep, outputs: blocks of a cluster, which share a tile's k
  std::int64_t tiles;   ///< sweep: of all batches
  std::int64_t workspace_bytes;
  bool many;       ///< sweep: several blocks an SM, of half as many warps
  double seconds;  ///< predicted
};

/// gemv/dot.cu: is its large operand B (else A)?
inline bool dot_streams_b(const Problem& p) { return p.m <= kGemvLines && b_along_k(p); }

/// gemv/sweep.cu: the same, if it serves the problem.
inline bool sweep_streams_b(const Problem& p) { return p.m <= kGemvLines && p.b.col_stride == 1; }

inline constexpr int kOutputsThreads = 256;  ///< gemv/outputs.cu: of a CTA, along k

/// Floats of a line of x that dot copies to shared memory if it is not along k: all elements of strided quads, and 16 bytes so
/// that lines begin in different banks. It does so if there is room for kGemvLines lines.
constexpr std::int64_t dot_pitch(std::int64_t k) { return (k + 127) / 128 * 128 + 4; }
inline constexpr std::int64_t kDotMaxStaged = 200 * 1024;
constexpr bool dot_stages(std::int64_t k) { return 4 * kGemvLines * dot_pitch(k) <= kDotMaxStaged; }

}  // namespace xgemm::matmul
