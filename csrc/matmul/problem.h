// What a matrix product is to plan and kernels: plain numbers, no torch.
//   D = activation(alpha * A B + beta * C) + residual,   for every index of up to kMaxBatchDims batch dims
// A is m x k, B is k x n, the others m x n; each has a stride, in elements, for its rows, its columns and every batch dim, and a
// stride of 0 repeats. A bias is a C of row stride 0 with beta = 1.
#pragma once
#include <cstdint>

#include "device/dtype.h"

namespace xgemm {

enum class Activation : std::uint8_t { none, relu, gelu, gelu_tanh, silu };

/// How an fp32 product may be computed; half types and fp64 ignore it. `highest`: as accurate as SGEMM or more, by the fastest
/// means; `ieee`: fp32 multiply-adds; `high`: TF32 or better; `medium`: bf16 or better.
enum class Precision : std::uint8_t { highest, ieee, high, medium };

inline constexpr int kMaxBatchDims = 3;

struct Matrix {
  void* data = nullptr;  ///< nullptr: absent (C, residual)
  std::int64_t row = 0, col = 0;
  std::int64_t batch[kMaxBatchDims] = {};  ///< outermost first, as in Problem::batch
};

struct Problem {
  DType dtype = DType::f32;  ///< of all five matrices
  Precision precision = Precision::highest;
  Activation activation = Activation::none;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t batch[kMaxBatchDims] = {1, 1, 1};  ///< extents; unused ones are 1
  double alpha = 1, beta = 0;
  Matrix a, b, c, residual, d;

  constexpr std::int64_t batches() const { return batch[0] * batch[1] * batch[2]; }
};

}  // namespace xgemm
