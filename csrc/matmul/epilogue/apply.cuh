// The end of every product: out = (activation(alpha * sum + beta * c + bias) + residual) * factor, in the accumulator's type,
// rounded once.
// Multiplications and additions name their rounding, so that the compiler does not fuse them in one kernel and not in another:
// an element's bits depend on its sum's bits, not on the kernel.
#pragma once
#include <cmath>

#include "device/numeric.cuh"
#include "matmul/problem.h"

namespace xgemm::matmul {

__device__ __forceinline__ float plus(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double plus(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double times(double a, double b) { return __dmul_rn(a, b); }

/// 1 / x by the special-function unit: relative error 2^-22.
__device__ __forceinline__ float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// x / (1 + e^-x). The fp32 form avoids a division, which is a function call for huge and tiny quotients: with t = e^-|x| it is
/// x or x t over 1 + t, which is in [1, 2], and one Newton step makes the reciprocal as exact as a division.
__device__ __forceinline__ float silu(float x) {
  const float t = expf(-fabsf(x)), d = plus(1.f, t), r = fast_reciprocal(d);
  return times(x > 0 ? x : times(x, t), fmaf(r, fmaf(-d, r, 1.f), r));
}
__device__ __forceinline__ double silu(double x) { return x / plus(1., exp(-x)); }

template <class Acc>
__device__ __forceinline__ Acc activate(Acc x, Activation activation) {
  switch (activation) {
    case Activation::relu: return x > 0 || isnan(x) ? x : Acc(0);
    case Activation::gelu: return times(times(Acc(0.5), x), plus(Acc(1), erf(times(x, Acc(0.70710678118654752440)))));
    case Activation::gelu_tanh: {
      const Acc cubic = fma(times(Acc(0.044715), times(x, x)), x, x);
      return times(times(Acc(0.5), x), plus(Acc(1), tanh(times(Acc(0.79788456080286535588), cubic))));
    }
    case Activation::silu: return silu(x);
    default: return x;
  }
}

/// Below, fp64's 1 + erf and 1 + tanh are 0, as torch's fp32 ones are. So GELU is 0 here too, and NaN times an infinite factor.
inline constexpr float kGeluIsZero = -8.375f, kGeluTanhIsZero = -7.2f;

/// For half-precision results: relative error under 2^-15, the tails above these limits included, in a third of the instructions.
__device__ __forceinline__ float activate_half(float x, Activation activation) {
  switch (activation) {
    case Activation::relu: return x > 0 || isnan(x) ? x : 0.f;
    case Activation::gelu: {  // x erfc(-x / sqrt 2) / 2, by erfc(z) = e^(-z^2) P(1 / (1 + 0.53 z)) for z >= 0
      const float z = times(fabsf(x), 0.70710678f), t = fast_reciprocal(fmaf(0.53f, z, 1.f));
      float tail = fmaf(t, -0.0915110416f, 0.2026885021f);
      tail = fmaf(t, tail, 0.0817030311f);
      tail = fmaf(t, tail, 0.1581973055f);
      tail = fmaf(t, tail, 0.1489093082f);
      tail = times(times(t, tail), exp2_approx(times(times(z, -kLog2E), z)));
      return times(x, x > 0 ? plus(1.f, -tail) : x < kGeluIsZero ? 0.f : tail);
    }
    case Activation::gelu_tanh: {  // (1 + tanh u) / 2 = 1 / (1 + e^(-2 u))
      const float u = times(0.79788456f, fmaf(times(0.044715f, times(x, x)), x, x));
      const float weight = fast_reciprocal(plus(1.f, exp2_approx(times(u, -2 * kLog2E))));
      return times(x, x < kGeluTanhIsZero ? 0.f : weight);
    }
    case Activation::silu: return times(x, fast_reciprocal(plus(1.f, exp2_approx(times(x, -kLog2E)))));
    default: return x;
  }
}

/// At the precision that out of type T needs.
template <class T, class Acc>
__device__ __forceinline__ Acc activate_for(Acc x, Activation activation) {
  if constexpr (sizeof(T) == 2)
    return activate_half(x, activation);
  else
    return activate(x, activation);
}

/// One branch for all values, so that their instructions overlap.
template <class T, class Acc, int kCount>
__device__ __forceinline__ void activate_all(Acc (&x)[kCount], Activation activation) {
  const auto all = [&](Activation known) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = activate_for<T>(x[i], known);
  };
  switch (activation) {
    case Activation::relu: return all(Activation::relu);
    case Activation::gelu: return all(Activation::gelu);
    case Activation::gelu_tanh: return all(Activation::gelu_tanh);
    case Activation::silu: return all(Activation::silu);
    default: return;
  }
}

/// alpha * sum. + 0: a sum of -0 would depend on how far a kernel pads k with zeros.
__device__ __forceinline__ float scaled(float alpha, float sum) { return fmaf(alpha, sum, 0.f); }
__device__ __forceinline__ double scaled(double alpha, double sum) { return fma(alpha, sum, 0.); }

/// The epilogue after alpha for kCount sums, without the factor. c(i), bias(i) and residual(i) are sum i's operands; they are
/// called only if `e` has the operand. `activate(x)`: of all sums.
template <class Acc, int kCount, class E, class Activate, class C, class Bias, class Residual>
__device__ __forceinline__ void apply(Acc (&x)[kCount], const E& e, const Activate& activate, const C& c, const Bias& bias,
                                      const Residual& residual) {
  if (e.c) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = fma(e.beta, convert<Acc>(c(i)), x[i]);
  }
  if (e.bias) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = plus(x[i], convert<Acc>(bias(i)));
  }
  activate(x);
  if (e.residual) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = plus(x[i], convert<Acc>(residual(i)));
  }
}
/// With activations as an output of T needs them.
template <class T, class Acc, int kCount, class E, class C, class Bias, class Residual>
__device__ __forceinline__ void apply(Acc (&x)[kCount], const E& e, const C& c, const Bias& bias, const Residual& residual) {
  apply(x, e, [&](Acc(&sums)[kCount]) { activate_all<T>(sums, e.activation); }, c, bias, residual);
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
  const Acc* factor;
  std::int64_t factor_row;

  /// The result before rounding.
  __device__ __forceinline__ Acc exact(Acc sum, std::int64_t row, std::int64_t col) const {
    Acc x = scaled(alpha, sum);
    if (c) x = fma(beta, convert<Acc>(c[row * c_row + col * c_col]), x);
    if (bias) x = plus(x, convert<Acc>(bias[col * bias_col]));
    x = activate_for<T>(x, activation);
    if (residual) x = plus(x, convert<Acc>(residual[row * residual_row + col * residual_col]));
    if (factor) x = fma(x, factor[row * factor_row + col], Acc(0));  // + 0: as the gated kernel's epilogue
    return x;
  }

  __device__ __forceinline__ T operator()(Acc sum, std::int64_t row, std::int64_t col) const {
    return convert<T>(exact(sum, row, col));
  }

  /// All after alpha for (row, column(i)), which are in bounds.
  template <int kCount, class Column>
  __device__ __forceinline__ void finish(Acc (&x)[kCount], std::int64_t row, const Column& column) const {
    apply<T>(
        x, *this, [&](int i) { return c[row * c_row + column(i) * c_col]; }, [&](int i) { return bias[column(i) * bias_col]; },
        [&](int i) { return residual[row * residual_row + column(i) * residual_col]; });
    if (factor) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] = fma(x[i], factor[row * factor_row + column(i)], Acc(0));
    }
  }

  /// (row, col) .. (row, col + 3), of which the first `count` are in bounds. Each operand is tested once, so that its four
  /// loads and the four activations overlap; elements out of bounds repeat the first column.
  template <class Out>
  __device__ __forceinline__ Quad<Out> quad(const Quad<Acc>& sum, std::int64_t row, std::int64_t col, int count) const {
    Quad<Out> q{};
    if (count <= 0) return q;
    Acc x[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) x[j] = scaled(alpha, sum.v[j]);
    finish(x, row, [=](int j) { return j < count ? col + j : col; });
#pragma unroll
    for (int j = 0; j < 4; ++j) q.v[j] = convert<Out>(x[j]);
    return q;
  }
};

/// Calls f(d, index in dim d) for batch `index` of `p`, a Problem or what has its batch_dims and batch[]. Short code, because it
/// runs before the first load.
template <class Index, class F>
__device__ __forceinline__ void each_batch_dim(const auto& p, Index index, const F& f) {
#pragma unroll 1
  for (int d = p.batch_dims - 1; d >= 0; --d) {
    const auto size = static_cast<Index>(p.batch[d]);
    f(d, static_cast<std::int64_t>(index % size));
    index /= size;
  }
}

/// Offset of batch `index` of an operand, in elements.
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

/// For batch 0.
template <class T, class Acc>
__device__ __forceinline__ Epilogue<T, Acc> make_epilogue_at(const Problem& p) {
  return {static_cast<const T*>(p.c.data),
          static_cast<const T*>(p.bias.data),
          static_cast<const T*>(p.residual.data),
          p.c.row_stride,
          p.c.col_stride,
          p.bias.col_stride,
          p.residual.row_stride,
          p.residual.col_stride,
          static_cast<Acc>(p.alpha),
          static_cast<Acc>(p.beta),
          p.activation,
          static_cast<const Acc*>(p.factor),
          p.n};
}

template <class T, class Acc>
__device__ __forceinline__ Epilogue<T, Acc> make_epilogue(const Problem& p, std::int64_t batch) {
  auto e = make_epilogue_at<T, Acc>(p);
  each_batch_dim(p, static_cast<unsigned>(batch), [&](int d, std::int64_t at) {
    if (e.c) e.c += at * p.c.batch_stride[d];
    if (e.bias) e.bias += at * p.bias.batch_stride[d];
    if (e.residual) e.residual += at * p.residual.batch_stride[d];
  });
  if (e.factor) e.factor += batch * p.m * p.n;
  return e;
}

}  // namespace xgemm::matmul
