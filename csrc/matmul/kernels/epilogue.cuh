// The end of every product: out = activation(alpha * sum + beta * c + bias) + residual, in the accumulator's type, rounded once.
#pragma once
#include <cmath>

#include "device/numeric.cuh"
#include "matmul/problem.h"

namespace xgemm::matmul {

template <class Acc>
__device__ __forceinline__ Acc activate(Acc x, Activation activation) {
  switch (activation) {
    case Activation::relu: return x > 0 || isnan(x) ? x : Acc(0);
    case Activation::gelu: return Acc(0.5) * x * (Acc(1) + erf(x * Acc(0.70710678118654752440)));
    case Activation::gelu_tanh:
      return Acc(0.5) * x * (Acc(1) + tanh(Acc(0.79788456080286535588) * (x + Acc(0.044715) * x * x * x)));
    case Activation::silu:
      if constexpr (sizeof(Acc) == 4)
        return __fdividef(x, 1.f + exp(-x));  // no subroutine for the division: it would cost registers of the sums
      else
        return x / (Acc(1) + exp(-x));
    default: return x;
  }
}

/// Four neighbours in a row.
template <class T>
struct Quad {
  T v[4];
};

/// Up to four output elements; the operands' data already point at this batch.
template <class T, class Acc>
struct Epilogue {
  const T* c;
  const T* bias;
  const T* residual;
  std::int64_t c_row, c_col, bias_col, residual_row, residual_col;
  Acc alpha, beta;
  Activation activation;

  __device__ __forceinline__ T operator()(Acc sum, std::int64_t row, std::int64_t col) const {
    Acc x = alpha * sum;
    if (c) x += beta * convert<Acc>(c[row * c_row + col * c_col]);
    if (bias) x += convert<Acc>(bias[col * bias_col]);
    x = activate(x, activation);
    if (residual) x += convert<Acc>(residual[row * residual_row + col * residual_col]);
    return convert<T>(x);
  }

  /// (row, col) .. (row, col + 3), of which the first `count` exist.
  __device__ __forceinline__ Quad<T> operator()(const Quad<Acc>& sum, std::int64_t row, std::int64_t col, int count) const {
    Quad<T> q{};
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (j < count) q.v[j] = (*this)(sum.v[j], row, col + j);
    return q;
  }
};

/// Where batch `index` of an operand starts, in elements.
__device__ __forceinline__ std::int64_t batch_offset(const Problem& p, const Operand& x, std::int64_t index) {
  std::int64_t offset = 0;
#pragma unroll
  for (int d = kMaxBatchDims - 1; d >= 0; --d) {
    if (d >= p.batch_dims) continue;
    offset += index % p.batch[d] * x.batch_stride[d];
    index /= p.batch[d];
  }
  return offset;
}

template <class T, class Acc>
__device__ __forceinline__ Epilogue<T, Acc> make_epilogue(const Problem& p, std::int64_t batch) {
  const auto at = [&](const Operand& x) -> const T* {
    return x.data ? static_cast<const T*>(x.data) + batch_offset(p, x, batch) : nullptr;
  };
  return {at(p.c),        at(p.bias),
          at(p.residual), p.c.row_stride,
          p.c.col_stride, p.bias.col_stride,
          p.residual.row_stride, p.residual.col_stride,
          static_cast<Acc>(p.alpha), static_cast<Acc>(p.beta),
          p.activation};
}

}  // namespace xgemm::matmul
