// 16-bit operands of a product: in place, packed, or fp32 split in fp16 parts; their places in the workspace and the time of the
// passes that write them.
#pragma once
#include <algorithm>

#include "matmul/plan/roofline.h"
#include "matmul/tensor_operand.h"

namespace xgemm::matmul {

inline constexpr std::int64_t kLeastSplitK = 128;  ///< of two parts: for smaller K their own error (2^-22) shows
inline constexpr double kSplitLaunch = 2.8;        ///< of each: a pass over an operand, the product, the fallback
inline constexpr double kSplitElements = 1.74;     ///< time of the pass with single elements, relative to quads

/// `copied`: even if it could be read in place; `along_k`: the kernel needs it contiguous along k.
inline TensorOperand place_operand(const Problem& p, const OperandLines& x, bool copied, bool along_k) {
  TensorOperand t = tensor_operand(p, x, 2, along_k);
  constexpr std::int64_t kFewLines = 64;  // a box along few lines is mostly out of bounds
  if (is_half(p.dtype) && t.copied && x.count <= kFewLines) t = tensor_operand(p, x, 2, true);
  // Rows of a copy are whole cache lines: a box whose rows straddle two takes up to twice as long.
  if (copied || t.copied) place_copy(t, round_up(t.inner, t.inner > 64 ? 64 : 8));
  return t;
}

/// Microseconds of the pass that splits an operand in fp16 `parts`, or packs it (0).
inline double pass_us(const Question& q, const OperandLines& x, const TensorOperand& t, int parts) {
  if (t.prepared || !t.copied) return 0;
  const auto elements = static_cast<double>(t.inner * t.other * t.batches);
  if (parts == 0) return q.move(4 * elements);
  const int reads = t.k_major ? 1 : 2;  // columns: for their scales, then in a second launch for the parts
  return kSplitLaunch + (reads - 1) * kNextLaunch +
         (has_vectors(q.p, x, 4) ? 1 : kSplitElements) * q.move((4 * reads + 2 * parts) * elements);
}

/// Takes the place of a copy and of its lines' statistics from a workspace of `bytes`.
inline void take_copy(const Question& q, int parts, TensorOperand& x, std::int64_t& bytes) {
  if (!x.copied || x.prepared) return;  // no operand, or a copy made before
  x.copy = reserve(bytes, 2 * std::max(1, parts) * x.plane * x.batches);
  if (parts == 0) return;
  x.stats = reserve(bytes, 16 * (x.k_major ? x.other : x.inner) * x.batches);
  if (x.k_major) return;
  // A split along lines is cut in chunks of k: eight CTAs an SM, of 32 rows or more; few enough to look at all of them.
  constexpr std::int64_t kLines = 128, kRows = 32, kMostChunks = 32, kMostRows = 1 << 17;  // CTAs' lines and rows
  const std::int64_t filled = ceil_div(std::int64_t{8} * q.gpu.sm_count, ceil_div(x.inner, kLines) * x.batches),
                     chunks = std::max<std::int64_t>(1, std::min({filled, kMostChunks, x.other / kRows}));
  x.chunks = static_cast<int>(std::max(chunks, ceil_div(x.other, kMostRows)));
  x.tops = reserve(bytes, 4 * (x.chunks + 1) * x.inner * x.batches);
}

}  // namespace xgemm::matmul
