// SDPA's memory-efficient backend on this library's attention.
#pragma once
#include "enable/previous.h"

namespace xgemm::enable {

/// aten::_scaled_dot_product_efficient_attention: where float32, and masks, go. Torch's backward reads the results: the output
/// lies as (B, S, H, Dv), the log-sum-exp is padded with inf to 32 queries.
FourTensors efficient_attention(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& bias,
                                bool want_lse, double dropout, bool causal, std::optional<double> scale);

}  // namespace xgemm::enable
