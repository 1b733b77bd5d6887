#include <limits>

#include "attention/backward/gradients.h"
#include "attention/call.h"
#include "attention/families.h"
#include "enable/answer.h"

namespace xgemm::enable {
namespace {
constexpr std::int64_t kWidestHead = 256;  ///< wider ones run on CUDA cores in float32
constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& mask, double dropout,
                 bool causal, std::optional<double> scale, bool gqa) {
  constexpr Op op = "scaled_dot_product_attention"_op;
  const auto torch = [&](const Tensor& keys, const Tensor& values, bool grouped) {
    return previous(false).attention(nullptr, q.get(), keys.get(), values.get(), OptionalTensor(mask), dropout, causal, scale,
                                     grouped);
  };
  if (!gqa || serving || !can_be_ours(q) || q.scalar_type() != ScalarType::Float) return torch(k, v, gqa);
  By by = by_settings(op, ScalarType::Float);
  std::vector<Tensor> repeated;
  try {
    if (by == By::xgemm) repeated = call_operator<std::vector<Tensor>>("xgemm_aten::repeated_heads", "", q, k, v);
  } catch (const std::exception&) {
    by = By::memory;
  }
  if (by != By::xgemm || !repeated.empty()) count(op, by);
  if (repeated.empty()) return torch(k, v, gqa);
  return torch::stable::contiguous(torch(repeated[0], repeated[1], false));  // as torch's product
}

FourTensors efficient_attention(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& bias,
                                bool want_lse, double dropout, bool causal, std::optional<double> scale) {
  constexpr Op op = "_scaled_dot_product_efficient_attention"_op;
  const auto torch = [&] { return previous(q.is_cuda()).efficient_attention(q, k, v, bias, want_lse, dropout, causal, scale); };
  if (serving) return torch();
  if (!can_be_ours(q) || !can_be_ours(k) || !can_be_ours(v)) return count(op, By::dtype), torch();
  const TensorView vq = view(name_of(op), "query", q), vk = view(name_of(op), "key", k), vv = view(name_of(op), "value", v);
  const auto by = [&] {
    if (const By settings = by_settings(op, vq.dtype); settings != By::xgemm) return settings;
    if (!same_type(vq, vk) || !same_type(vq, vv)) return By::dtype;
    const bool fits = vq.dim() == 4 && vk.dim() == 4 && vv.dim() == 4 && vq.size(0) == vk.size(0) && vq.size(1) == vk.size(1) &&
                      vk.size(0) == vv.size(0) && vk.size(1) == vv.size(1) && vk.size(2) == vv.size(2) &&
                      vq.size(3) == vk.size(3);
    if (!fits || vq.size(3) > kWidestHead || vv.size(3) > kWidestHead || vq.numel() == 0 || vk.numel() == 0 || vv.numel() == 0)
      return By::shape;
    if (dropout != 0) return By::option;
#ifdef XGEMM_WITH_CUDA
    if (vq.dtype == ScalarType::Float && !in_order() &&
        !attention::parts_gain(device_properties(vq.device_index), vk.size(2), vq.size(3), vv.size(3)))
      return By::faster;
#endif
    return By::xgemm;
  }();
  if (by != By::xgemm) return count(op, by), torch();
  const Serving guard;
  static const std::string kAlignment = "top_left", kPrecision = "highest";
  static const std::vector<std::int64_t> kWindow = {-1, -1};
  attention::Call call = attention::check_arguments(
      name_of(op), q, k, v, {bias, causal, scale, false, kAlignment, kWindow, 0, std::nullopt, kPrecision});
  call.heads_beside = true;
  const attention::Result result = attention::run(call, want_lse);
  const std::int64_t queries = vq.size(2), padded = want_lse ? (queries + 31) / 32 * 32 : 0;
  Tensor lse = result.lse ? *result.lse : empty(std::array{vq.size(0), vq.size(1), padded}, ScalarType::Float, vq);
  if (result.lse && bias)  // a query without keys: the backward's exp(score - inf) is 0
    lse = aten("nan_to_num", "", lse, std::optional(kNaN), std::optional(kInfinity), std::optional(kInfinity));
  if (result.lse && padded != queries) {
    const std::array shape{vq.size(0), vq.size(1), padded};
    Tensor whole = empty(shape, ScalarType::Float, vq);
    torch::stable::fill_(whole, kInfinity);
    Tensor part = torch::stable::narrow(whole, 2, 0, queries);
    torch::stable::copy_(part, lse);
    lse = whole;
  }
  count(op, by);
  const auto no_state = [] { return empty({}, ScalarType::Long, TensorView()); };  // a generator's, on the CPU
  return {result.output, lse, no_state(), no_state()};
}

Gradients efficient_attention_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                       const std::optional<Tensor>& bias, const Tensor& out, const Tensor& lse,
                                       [[maybe_unused]] bool causal, [[maybe_unused]] std::optional<double> scale) {
  constexpr Op op = "_scaled_dot_product_efficient_attention_backward"_op;
  if (serving) return {};
  for (const Tensor* t : {&grad, &q, &k, &v, &out, &lse, bias ? &*bias : &q})
    if (!can_be_ours(*t) || t->scalar_type() != ScalarType::Float) return count(op, By::dtype), Gradients();
  By by = by_settings(op, ScalarType::Float);
  if (by == By::xgemm && !q.is_cuda()) by = By::cpu;
#ifdef XGEMM_WITH_CUDA
  if (by == By::xgemm) {
    const auto of = [&](const char* name, const Tensor& t) { return view(name_of(op), name, t); };
    attention::GradientCall c{of("query", q),       of("key", k), of("value", v), of("out", out), of("grad_out", grad),
                              of("logsumexp", lse), std::nullopt, causal,         scale};
    if (bias) c.bias = of("attn_bias", *bias);
    if (!attention::takes(c))
      by = By::shape;
    else if (!attention::parts_gain(device_properties(c.query.device_index)))
      by = By::faster;
    else
      try {
        const Serving guard;
        const Gradients gradients = attention::gradients(c);
        return count(op, by), gradients;
      } catch (const std::exception& error) {
        if (std::string_view(error.what()).starts_with("xgemm")) throw;
        by = By::memory;  // torch's kernel needs no parts
      }
  }
#endif
  return count(op, by), Gradients();
}

}  // namespace xgemm::enable
