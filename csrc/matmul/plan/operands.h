// 16-bit operands of a product: in place, packed, or fp32 split in fp16 parts; their workspace, and the time of their passes.
#pragma once
#include <algorithm>
#include <initializer_list>

#include "matmul/plan/roofline.h"
#include "matmul/tensor_operand.h"

namespace xgemm::matmul {

inline constexpr std::int64_t kLeastSplitK = 96;  ///< of two parts: for smaller K their own error (2^-22) shows
inline constexpr double kSplitLaunch = 2.8;       ///< of each: a pass over an operand, the product, the fallback
inline constexpr double kSplitElements = 1.74;    ///< time of the pass by element or over short rows, relative to quads

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
  const bool fast = has_vectors(q.p, x, 4) && !(t.k_major && t.inner <= kShortRow);
  return kSplitLaunch + (reads - 1) * kNextLaunch + (fast ? 1 : kSplitElements) * q.move((4 * reads + 2 * parts) * elements);
}

/// Into how many chunks of k, a CTA each, strips of columns are cut: as few as keep all SMs equally busy, of 32 rows or more.
inline std::int64_t split_chunks(const Question& q, std::int64_t strips) {
  constexpr std::int64_t kRows = 32, kMostChunks = 32, kMostRows = 1 << 17;
  constexpr std::int64_t kPerSm = 3, kStart = 64;  // CTAs an SM; rows that take as long as a CTA's start
  const std::int64_t k = q.p.k, at_once = kPerSm * q.gpu.sm_count;
  const auto rows = [&](std::int64_t chunks) {  // one after another
    return ceil_div(strips * chunks, at_once) * (ceil_div(k, chunks) + kStart);
  };
  std::int64_t best = 1;
  for (std::int64_t chunks = 2; chunks <= std::min(kMostChunks, k / kRows); ++chunks)
    if (rows(chunks) < rows(best)) best = chunks;
  return std::max(best, ceil_div(k, kMostRows));
}

/// Takes the places of copies and of their lines' statistics from a workspace of `bytes`.
inline void take_copies(const Question& q, int parts, std::initializer_list<TensorOperand*> operands, std::int64_t& bytes) {
  const auto is_made = [](const TensorOperand& x) { return x.copied && !x.prepared; };
  const auto is_split_by_columns = [&](const TensorOperand& x) { return parts > 0 && is_made(x) && !x.k_major; };
  std::int64_t strips = 0;
  for (TensorOperand* x : operands) {
    if (!is_made(*x)) continue;
    x->copy = reserve(bytes, 2 * std::max(1, parts) * x->plane * x->batches);
    if (parts > 0) x->stats = reserve(bytes, 16 * (x->k_major ? x->other : x->inner) * x->batches);
    if (is_split_by_columns(*x)) strips += ceil_div(x->inner, kStripLines) * x->batches;
  }
  if (strips == 0) return;
  const std::int64_t chunks = split_chunks(q, strips);
  for (TensorOperand* x : operands)
    if (is_split_by_columns(*x))
      x->chunks = static_cast<int>(chunks), x->tops = reserve(bytes, 4 * (chunks + 1) * x->inner * x->batches);
}

}  // namespace xgemm::matmul
