// softmax and log_softmax for C++ callers.
#pragma once
#include "torch/tensor.h"

namespace xgemm::softmax {

/// As torch.softmax or torch.log_softmax. `op`: its name in errors. `out`: null, or where a GPU writes the result: of its shape
/// and dtype, contiguous, on 16 bytes, apart from the input (on the CPU it is not written).
Tensor softmax(const char* op, bool log, const Tensor& input, std::int64_t dim, const std::optional<ScalarType>& dtype,
               const Tensor* out = nullptr);

}  // namespace xgemm::softmax
