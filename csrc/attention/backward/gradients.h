// Gradients of attention in fp32 on a GPU, from tensors.
#pragma once
#include <optional>
#include <tuple>

#include "torch/tensor.h"

namespace xgemm::attention {

/// A backward's inputs, in fp32: (B, H, S, D), the log-sum-exp (B, H, Sq or more).
struct GradientCall {
  TensorView query, key, value, output, grad_output, lse;
  std::optional<TensorView> bias;  ///< added to the scaled scores, (B, H, Sq, Sk)
  bool causal;
  std::optional<double> scale;  ///< unset: 1 / sqrt(D)
};

/// Are they on one device, do their shapes fit, and is D a multiple of 4, 128 at most?
bool takes(const GradientCall& call);
/// Of query, key and value, with the strides of torch's: as (B, S, H, D). Hopper.
std::tuple<Tensor, Tensor, Tensor> gradients(const GradientCall& call);

}  // namespace xgemm::attention
