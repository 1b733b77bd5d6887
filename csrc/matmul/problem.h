// A matrix product as the kernels see it: pointers, strides, sizes, epilogue. Free of torch.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>

#include "device/dtype.h"

namespace xgemm::matmul {

/// Applied to alpha * A B + beta * C + bias, before the residual is added.
enum class Activation : std::uint8_t { none, relu, gelu, gelu_tanh, silu };

inline constexpr int kMaxBatchDims = 4;

/// Bytes of an accumulator.
constexpr int accumulator_bytes(DType t) { return t == DType::f64 ? 8 : 4; }

/// A matrix of a batch: strides in elements, 0 if broadcast.
struct Operand {
  const void* data = nullptr;
  std::int64_t row_stride = 0, col_stride = 0;
  std::int64_t batch_stride[kMaxBatchDims] = {};
  friend bool operator==(const Operand&, const Operand&) = default;
};

/// out = (activation(alpha * A B + beta * c + bias) + residual) * factor; out is contiguous, (batch..., m, n), of the inputs'
/// dtype. Gated: out = activation(A B + bias) * (A up + bias_up).
struct Problem {
  DType dtype = DType::f32;
  Precision precision = Precision::highest;
  Activation activation = Activation::none;
  bool batch_invariant = false;  ///< the order of additions must depend on n, k and dtype alone
  std::int64_t m = 0, n = 0, k = 0;
  int batch_dims = 0;  ///< dims 0 .. batch_dims - 1 of batch[] and batch_stride[], outermost first
  std::int64_t batch[kMaxBatchDims] = {1, 1, 1, 1};
  std::int64_t batches = 1;  ///< product of batch[]
  Operand a, b;
  Operand c;         ///< read unless beta is 0 or data is null
  Operand bias;      ///< one value per column; col_stride
  Operand residual;  ///< added last
  double alpha = 1, beta = 0;
  bool gated = false;
  Operand up;                        ///< as b
  Operand bias_up;                   ///< as bias
  const void* factor = nullptr;      ///< contiguous as out, of the accumulator's type; may be out itself
  const void* prepared_b = nullptr;  ///< fp32: b's prepared parts (wgmma/plan.h, PreparedLayout)
  bool wide_out = false;             ///< out is of the accumulator's type
  void* out = nullptr;
  friend bool operator==(const Problem&, const Problem&) = default;
};

/// Do A and B's quads run along k (else along A's rows, B's columns)?
inline bool a_along_k(const Problem& p) { return p.a.col_stride == 1; }
inline bool b_along_k(const Problem& p) { return p.b.row_stride == 1; }

/// Do all batches have the same matrix `x`?
inline bool is_shared(const Problem& p, const Operand& x) {
  return std::all_of(x.batch_stride, x.batch_stride + p.batch_dims, [](std::int64_t step) { return step == 0; });
}

/// An operand as lines of k elements: A's rows, or B's or up's columns.
struct OperandLines {
  const Operand& operand;
  std::int64_t count, stride, k_stride;
};
inline OperandLines lines_of_a(const Problem& p) { return {p.a, p.m, p.a.row_stride, p.a.col_stride}; }
inline OperandLines lines_of_b(const Problem& p) { return {p.b, p.n, p.b.col_stride, p.b.row_stride}; }
inline OperandLines lines_of_up(const Problem& p) { return {p.up, p.n, p.up.col_stride, p.up.row_stride}; }

/// C^T = B^T A^T; the epilogue's operands and `out` are still C's.
inline Problem transposed(const Problem& p) {
  Problem t = p;
  t.m = p.n, t.n = p.m, t.a = p.b, t.b = p.a;
  std::swap(t.a.row_stride, t.a.col_stride), std::swap(t.b.row_stride, t.b.col_stride);
  return t;
}

/// Bytes of an operand that a kernel has to read.
inline double operand_bytes(const Problem& p, const OperandLines& x) {
  return static_cast<double>(size_of(p.dtype)) * static_cast<double>(x.count) * static_cast<double>(p.k) *
         (is_shared(p, x.operand) ? 1.0 : static_cast<double>(p.batches));
}

/// Is every vector of `count` elements along an operand's contiguous dim one aligned access of up to 16 bytes, wholly in or out
/// of bounds, in every batch?
inline bool has_vectors(const Problem& p, const OperandLines& x, std::int64_t count) {
  const bool along_k = x.k_stride == 1;
  const std::int64_t across = along_k ? x.stride : x.k_stride, size = along_k ? p.k : x.count;
  const auto aligned = [=](std::int64_t elements) { return elements % count == 0; };
  const auto bytes = std::min<std::int64_t>(16, count * static_cast<std::int64_t>(size_of(p.dtype)));
  return (along_k || x.stride == 1) && aligned(size) && ((along_k && x.count == 1) || aligned(across)) &&
         reinterpret_cast<std::intptr_t>(x.operand.data) % bytes == 0 &&
         std::all_of(x.operand.batch_stride, x.operand.batch_stride + p.batch_dims, aligned);
}

/// Do the sizes of A and B allow quads? For choices that affect bits, which must not depend on addresses.
inline bool has_quads_by_size(const Problem& p) {
  return (a_along_k(p) ? p.k : p.m) % 4 == 0 && (b_along_k(p) ? p.k : p.n) % 4 == 0;
}

/// Does the epilogue do nothing but multiply by alpha and add the bias?
inline bool has_plain_epilogue(const Problem& p) {
  return !p.c.data && !p.residual.data && !p.factor && p.activation == Activation::none;
}

/// The problem for which a batch-invariant problem's kernels are chosen: many aligned rows and columns along k, whatever the
/// number and layout of its own (a single row may have other strides than one of many).
inline Problem with_many_rows(const Problem& p) {
  Problem many = p;
  many.m = 4096, many.batches = 1, many.batch_dims = 0;
  for (std::int64_t& size : many.batch) size = 1;
  many.a = {.row_stride = p.k, .col_stride = 1};
  many.b = many.up = {.row_stride = 1, .col_stride = p.k};
  return many;
}

/// A gated product as two products: up_product writes `temporary` (of the accumulator's type, contiguous as out), gate_product
/// out.
inline Problem up_product(const Problem& p, void* temporary) {
  Problem up = p;
  up.gated = false, up.b = p.up, up.bias = p.bias_up, up.activation = Activation::none;
  up.wide_out = true, up.out = temporary;
  return up;
}
inline Problem gate_product(const Problem& p, const void* temporary) {
  Problem gate = p;
  gate.gated = false, gate.factor = temporary;
  return gate;
}

}  // namespace xgemm::matmul
