// The products for C++ callers: xgemm::matmul and xgemm::addmm into a given output.
#pragma once
#include "matmul/problem.h"
#include "torch/tensor.h"

namespace xgemm::matmul {

/// As torch.matmul. `op`: its name in errors. `out`: null, or where a GPU writes the result: of its shape and dtype, contiguous,
/// on 16 bytes, apart from the operands (on the CPU it is not written). `unless_slower`: where torch's kernel is expected to take
/// less time, nothing is computed and the result is undefined; never in batch-invariant mode.
Tensor matmul(const char* op, const Tensor& a, const Tensor& b, Precision precision, const Tensor* out = nullptr,
              bool unless_slower = false);

/// activation(beta * input + alpha * (mat1 @ mat2)); mat1 and mat2 as in matmul, input broadcasts to the result.
Tensor addmm(const char* op, const Tensor& input, const Tensor& mat1, const Tensor& mat2, double beta, double alpha,
             Activation activation, Precision precision, const Tensor* out = nullptr, bool unless_slower = false);

}  // namespace xgemm::matmul
