// A checked product: what matmul.cpp hands to run.cpp (CUDA) or cpu.cpp (ATen).
#pragma once
#include <optional>

#include "matmul/problem.h"
#include "torch/tensor.h"

namespace xgemm::matmul {

/// Operands are matrices with the output's batch dims.
struct Call {
  TensorView like;                  ///< gives the output's dtype and device
  Shape batch{};                    ///< the output's batch dims
  Shape out_shape{};                ///< of the caller's result
  Problem problem{};                ///< sizes, scalars and the operands' pointers and matrix strides
  Shape a{}, b{}, c{}, residual{};  ///< the operands' batch strides, one per batch dim
  const Tensor* out = nullptr;      ///< null: a new tensor; else as ops.h says
  bool unless_slower = false;       ///< as ops.h says
};

/// The product on a GPU; undefined if it is left to torch.
Tensor run(Call& call);

Tensor matmul_cpu(const Call& call, const TensorView& a, const TensorView& b);
Tensor addmm_cpu(const Call& call, const TensorView& input, const TensorView& a, const TensorView& b);
Tensor linear_cpu(const Call& call, const TensorView& weight, const std::optional<Tensor>& bias,
                  const std::optional<Tensor>& residual);
Tensor gated_linear_cpu(const Call& call, const TensorView& gate, const TensorView& up, const std::optional<Tensor>& bias_gate,
                        const std::optional<Tensor>& bias_up);

/// On a GPU: bytes that prepare() makes of a weight; 0 if no product would use them: no wgmma, half precision, or "ieee".
std::int64_t prepared_bytes(const TensorView& weight, Precision precision);
/// Fills `prepared`, of prepared_bytes, with the split of b.
void run_prepare(const Problem& p, Tensor& prepared, const TensorView& weight);

}  // namespace xgemm::matmul
