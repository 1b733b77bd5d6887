// scaled_dot_product_attention without a Sq x Sk buffer: the ops. Checks: call.cpp; the paths: cpu.cpp, cuda.cpp.
#include "attention/call.h"
#include "torch/register.h"

namespace xgemm {

attention::Result attention::run(const Call& call, bool want_lse) {
#ifdef XGEMM_WITH_CUDA
  if (call.query.cuda) return attention_cuda(call, want_lse);
#endif
  return attention_cpu(call, want_lse);
}

namespace {

template <bool kLse>
attention::Returned<kLse> attention_op(const Tensor& query, const Tensor& key, const Tensor& value,
                                       const std::optional<Tensor>& attn_mask, bool is_causal, std::optional<double> scale,
                                       bool enable_gqa, const Text& causal_alignment, const std::vector<std::int64_t>& window,
                                       double softcap, const std::optional<Tensor>& sinks, const Text& precision) {
  const char* const op = kLse ? "attention_lse" : "attention";
  const attention::Options options{attn_mask, is_causal, scale, enable_gqa, causal_alignment, window, softcap, sinks, precision};
  return attention::returned<kLse>(attention::run(attention::check_arguments(op, query, key, value, options), kLse));
}

XGEMM_REGISTER_FORWARD_ONLY(xgemm, attention, attention_op<false>);
XGEMM_REGISTER_FORWARD_ONLY(xgemm, attention_lse, attention_op<true>);

}  // namespace
}  // namespace xgemm
