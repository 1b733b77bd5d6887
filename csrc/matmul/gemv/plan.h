// The plan of the kernels for at most four rows or columns on CUDA cores: gemv/gemv.cuh and gemv/dot.cuh.
//
// Order of additions. gemv: that of simt/plan.h, so that a row's bits are those of any tile (except with gemv_is_exact, which
// batch-invariant problems do not use). dot (fp32, the large operand along k): one of its own, which depends on N and K (with
// few columns: on M and K) and on alignment, the same for 1 to 4 rows; batch-invariant problems do not use it.
#pragma once
#include "matmul/order.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

/// Rows or columns that the kernels take, and the chunks whose sums a block of gemv/gemv.cuh can hold.
inline constexpr std::int64_t kGemvLines = 4, kGemvMaxChunks = 32;

/// Does gemv/gemv.cuh keep its additions' rounding errors? Its bits are then not those of the other kernels.
inline bool gemv_is_exact(const Problem& p) {
  return p.dtype == DType::f32 && p.precision == Precision::highest && !p.batch_invariant;
}

struct GemvPlan {
  bool dot;
  std::int64_t chunk, chunks, splits;  ///< gemv: as SimtPlan has them
  std::int64_t workspace_bytes;
  double seconds;  ///< predicted
};

/// gemv/dot.cuh: is its large operand B (else A)?
inline bool dot_streams_b(const Problem& p) { return p.m <= kGemvLines && b_along_k(p); }

/// Floats of a line of x that dot copies to shared memory if it is not along k: all elements of strided quads, and 16 bytes so
/// that lines begin in different banks. It does so if there is room for kGemvLines lines.
constexpr std::int64_t dot_pitch(std::int64_t k) { return (k + 127) / 128 * 128 + 4; }
inline constexpr std::int64_t kDotMaxStaged = 200 * 1024;
constexpr bool dot_stages(std::int64_t k) { return 4 * kGemvLines * dot_pitch(k) <= kDotMaxStaged; }

}  // namespace xgemm::matmul
