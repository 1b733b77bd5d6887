// Operands of kernels that load by TMA. Pure host code.
#pragma once
#include <utility>

#include "device/integer.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

// The pass that splits fp32 operands (fp16_split/split.cuh): columns of a CTA, and rows of up to so many elements, which have a
// few threads each.
inline constexpr int kStripLines = 128, kShortRow = 128;

/// An operand in place, or a copy in the workspace (packed, or split in scaled fp16 parts).
struct TensorOperand {
  bool copied;
  bool prepared;              ///< the copy was made before: its offsets are in Problem::prepared_b
  bool k_major;               ///< contiguous along k, else along its lines (rows of A, columns of B)
  std::int64_t inner, other;  ///< sizes of the contiguous dim and of the other
  std::int64_t ld, plane;     ///< strides in elements: of the other dim, and of batches (of parts)
  int batch_step;             ///< 0: one matrix for all batches
  std::int64_t batches;       ///< matrices: 1 or the problem's
  std::int64_t copy, stats;   ///< offsets in the workspace, in bytes
  std::int64_t tops = 0;      ///< as `copy`: of a split along lines (fp16_split/split.cuh)
  int chunks = 1;             ///< of k, of such a split
};

/// An operand in place. `copied` if TMA cannot load it: TMA needs a contiguous dim, base and strides at multiples of 16 bytes,
/// one batch dim. `along_k`: the kernel needs it contiguous along k.
inline TensorOperand tensor_operand(const Problem& p, const OperandLines& x, std::int64_t element_bytes, bool along_k = false) {
  const Operand& operand = x.operand;
  const bool shared = is_shared(p, operand);
  const std::int64_t aligned = 16 / element_bytes;
  TensorOperand t{};
  t.k_major = x.k_stride == 1 || x.stride != 1 || along_k;
  t.inner = t.k_major ? p.k : x.count;
  t.other = t.k_major ? x.count : p.k;
  t.batch_step = shared ? 0 : 1;
  t.batches = shared ? 1 : p.batches;
  const std::int64_t inner_stride = t.k_major ? x.k_stride : x.stride, other_stride = t.k_major ? x.stride : x.k_stride;
  t.copied = !((inner_stride == 1 || t.inner == 1) && reinterpret_cast<std::uintptr_t>(operand.data) % 16 == 0 &&
               (t.other == 1 || (other_stride % aligned == 0 && other_stride >= t.inner)) &&
               (shared || (p.batch_dims == 1 && operand.batch_stride[0] % aligned == 0 && operand.batch_stride[0] > 0)));
  t.ld = t.other == 1 ? round_up(t.inner, aligned) : other_stride;
  t.plane = shared ? t.ld * t.other : operand.batch_stride[0];
  return t;
}

/// Reserves `size` bytes of a workspace that has `bytes`; returns their offset.
inline std::int64_t reserve(std::int64_t& bytes, std::int64_t size) { return std::exchange(bytes, round_up(bytes + size, 256)); }

/// Makes it a copy with `ld` elements from line to line.
inline void place_copy(TensorOperand& t, std::int64_t ld) { t.copied = true, t.ld = ld, t.plane = ld * t.other; }

}  // namespace xgemm::matmul
