// Costs are microseconds, as in candidates.cpp.
#include "matmul/plan/operands.h"

#include <algorithm>

#include "device/integer.h"
#include "matmul/plan/plan.h"

namespace xgemm::matmul {
namespace {

constexpr double kSplitElements = 1.74;  // the pass with single elements, relative to quads

/// Chunks of k in which a split along lines is cut: eight CTAs an SM, of 32 rows or more; few enough to look at all of them.
int split_chunks(std::int64_t lines, std::int64_t k, std::int64_t batches, int sm_count) {
  constexpr std::int64_t kLines = 128, kRows = 32, kMostChunks = 32, kMostRows = 1 << 17;  // CTAs' lines and rows
  const std::int64_t strips = ceil_div(lines, kLines) * batches, filled = ceil_div(std::int64_t{8} * sm_count, strips);
  return static_cast<int>(
      std::max(std::max<std::int64_t>(1, std::min({filled, kMostChunks, k / kRows})), ceil_div(k, kMostRows)));
}

}  // namespace

TensorOperand place_operand(const Problem& p, const OperandLines& x, bool copied, bool along_k) {
  TensorOperand t = tensor_operand(p, x, 2, along_k);
  constexpr std::int64_t kFewLines = 64;  // a box along few lines is mostly out of bounds
  if (is_half(p.dtype) && t.copied && x.count <= kFewLines) t = tensor_operand(p, x, 2, true);
  // Rows of a copy are whole cache lines: a box whose rows straddle two takes up to twice as long.
  if (copied || t.copied) place_copy(t, round_up(t.inner, t.inner > 64 ? 64 : 8));
  return t;
}

double pass_us(const Question& q, const OperandLines& x, const TensorOperand& t, int parts) {
  if (t.prepared || !t.copied) return 0;
  const auto elements = static_cast<double>(t.inner * t.other * t.batches);
  if (parts == 0) return q.move(4 * elements);
  const int reads = t.k_major ? 1 : 2;  // columns: for their scales, then in a second launch for the parts
  return kSplitLaunch + (reads - 1) * kNextLaunch +
         (has_vectors(q.p, x, 4) ? 1 : kSplitElements) * q.move((4 * reads + 2 * parts) * elements);
}

void take_copy(const Question& q, int parts, TensorOperand& x, std::int64_t& bytes) {
  if (!x.copied || x.prepared) return;  // no operand, or a copy made before
  x.copy = reserve(bytes, 2 * std::max(1, parts) * x.plane * x.batches);
  if (parts == 0) return;
  x.stats = reserve(bytes, 16 * (x.k_major ? x.other : x.inner) * x.batches);
  if (x.k_major) return;
  x.chunks = split_chunks(x.inner, x.other, x.batches, q.gpu.sm_count);
  x.tops = reserve(bytes, 4 * (x.chunks + 1) * x.inner * x.batches);
}

SimtPlan simt_fallback(Problem p, const DeviceProperties& gpu) {
  p.precision = Precision::ieee;
  // For few rows gemv would be faster, but it computes whole products only.
  SimtPlan simt = offer_simt({p, gpu, std::min(p.m, p.n) <= kGemvLines ? info(SimtTile::t16x128).name : ""});
  simt.splits = 1, simt.workspace_bytes = 0;
  return simt;
}

}  // namespace xgemm::matmul
