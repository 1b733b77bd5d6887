// The arguments of the gradients of attention: kernel.cuh.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace xgemm::attention {

inline constexpr int kWidestGradientHead = 128, kMostGradientHeads = 65535;  ///< D; batch and heads, which are grid dims

struct GradientArguments {
  /// (B, H, S, D) of fp32; its rows are aligned to 16 bytes, as are its strides, in elements.
  struct Operand {
    const float* data;
    std::int64_t batch, head, row;
  };
  Operand query, key, value, output, grad_output;
  /// Added to the scaled scores, (B, H, Sq, Sk) of fp32 with any strides; null: none.
  struct Bias {
    const float* data;
    std::int64_t batch, head, row, column;
  } bias;
  float *grad_query, *grad_key, *grad_value;  ///< (B, S, H, D), dense
  const float* lse;                           ///< natural log-sum-exp of scaled scores, (B, H, lse_row)
  void* parts;                                ///< gradient_bytes() of memory, aligned to 16 bytes
  int batch, heads, sq, sk, d;                ///< D is a multiple of 4
  int lse_row;
  float scale;
  bool causal;  ///< query i sees keys 0 to i
};

std::size_t gradient_bytes(const GradientArguments& arguments);
/// At least one query and one key.
void launch_gradients(const GradientArguments& arguments, cudaStream_t stream);

}  // namespace xgemm::attention
