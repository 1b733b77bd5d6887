// The reductions for C++ callers.
#pragma once
#include "reduce/plan.h"
#include "torch/tensor.h"

namespace xgemm::reduce {

/// As torch's sum, mean, amax, amin, argmax, argmin or logsumexp. `op`: its name in errors. `all`: every dim, whatever `dims`.
/// `out`: null, or where a GPU writes the result: of its shape and dtype, contiguous, apart from the input; ignored on the CPU.
Tensor reduce(const char* op, Kind kind, const Tensor& input, ShapeRef dims, bool all, bool keepdim,
              const std::optional<ScalarType>& dtype, const Tensor* out = nullptr);

}  // namespace xgemm::reduce
