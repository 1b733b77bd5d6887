// xgemm's operators as C++ functions: typed calls through PyTorch's dispatcher, compiled against the program's own LibTorch.
//
// The program links libxgemm.so (CMake target xgemm::xgemm) or loads it by xgemm::load(path); either registers torch.ops.xgemm.*.
// Tensors live on the CPU (ATen computes) or on a CUDA device (xgemm's kernels, on the current stream). An argument that does not
// fit gives a std::runtime_error of one line that begins with the operator's name.
//
// Forward only: an input that requires grad while grad mode is on is an error. Hold a torch::NoGradGuard or a c10::InferenceMode.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>

namespace xgemm {

/// Loads libxgemm.so by its path, for programs that do not link it. Loading twice does nothing.
inline void load(const std::string& path) {
  if (dlopen(path.c_str(), RTLD_NOW) == nullptr) throw std::runtime_error(std::string("xgemm::load: ") + dlerror());
}

namespace detail {

/// The operator's entry in the dispatcher. Each function below looks its own up once.
template <class Signature>
c10::TypedOperatorHandle<Signature> find(const char* name) {
  const auto op = c10::Dispatcher::singleton().findSchema({name, ""});
  if (!op)
    throw std::runtime_error(std::string(name) + ": libxgemm.so is not loaded; link xgemm::xgemm or call xgemm::load(path)");
  return op->template typed<Signature>();
}

inline bool requires_grad(const at::Tensor& t) { return t.defined() && t.requires_grad(); }
inline bool requires_grad(const std::optional<at::Tensor>& t) { return t.has_value() && requires_grad(*t); }

/// No operator has a backward, and without this check the gradient would be lost in silence.
template <class... Tensors>
void check_forward_only(const char* name, const Tensors&... inputs) {
  if (c10::GradMode::is_enabled() && (requires_grad(inputs) || ...))
    throw std::runtime_error(
        std::string(name) +
        ": has no backward, got an input that requires grad; hold a torch::NoGradGuard or c10::InferenceMode");
}

}  // namespace detail

/// Sets whether a row's bits depend on its own data, on N, K (or the row's length), dtype and GPU alone, in every operator on
/// CUDA, for the whole process; returns what was set before. XGEMM_BATCH_INVARIANT=1 sets it at the start.
inline bool set_batch_invariant(bool on) {
  static const auto op = detail::find<bool(bool)>("xgemm_mode::set_batch_invariant");
  return op.call(on);
}

// ---- matrix products ---------------------------------------------------------------------------------------------------------
// dtypes float32, float16, bfloat16, float64; any strides. `precision` says how float32 inputs are multiplied: "highest" (at
// least as accurate as SGEMM, by the fastest means), "ieee" (fp32 multiply-adds), "high" (TF32 or better), "medium" (the same
// on a GPU; bf16 or better on the CPU).

/// a @ b with torch.matmul's semantics: 1-D to N-D, batch dims broadcast.
inline at::Tensor matmul(const at::Tensor& a, const at::Tensor& b, std::string_view precision = "highest") {
  static const auto op = detail::find<at::Tensor(const at::Tensor&, const at::Tensor&, std::string_view)>("xgemm::matmul");
  detail::check_forward_only("xgemm::matmul", a, b);
  return op.call(a, b, precision);
}

/// beta * input + alpha * (mat1 @ mat2), for mat1 (M, K), mat2 (K, N) and an input that broadcasts to (M, N); the input is not
/// read when beta is 0.
inline at::Tensor addmm(const at::Tensor& input, const at::Tensor& mat1, const at::Tensor& mat2, double beta = 1,
                        double alpha = 1, std::string_view precision = "highest") {
  static const auto op =
      detail::find<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, double, double, std::string_view)>(
          "xgemm::addmm");
  detail::check_forward_only("xgemm::addmm", input, mat1, mat2);
  return op.call(input, mat1, mat2, beta, alpha, precision);
}

/// activation(input @ weight^T + bias) + residual in one kernel, for input (..., K), weight (N, K), bias (N) and residual (...,
/// N). activation: "none", "relu", "gelu", "gelu_tanh", "silu".
inline at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias = std::nullopt,
                         std::string_view activation = "none", const std::optional<at::Tensor>& residual = std::nullopt,
                         std::string_view precision = "highest") {
  static const auto op =
      detail::find<at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, std::string_view,
                              const std::optional<at::Tensor>&, std::string_view)>("xgemm::linear");
  detail::check_forward_only("xgemm::linear", input, weight, bias, residual);
  return op.call(input, weight, bias, activation, residual, precision);
}

/// The copy of a weight (N, K) that fp32 products on Hopper's tensor cores make at every call, to be kept for linear_prepared:
/// bytes, none where no product would use them.
inline at::Tensor prepare(const at::Tensor& weight, std::string_view precision = "highest") {
  static const auto op = detail::find<at::Tensor(const at::Tensor&, std::string_view)>("xgemm::prepare");
  return op.call(weight, precision);
}

/// linear with such a copy, made for the same precision. It has to be of the weight as it is now: nothing checks that here.
inline at::Tensor linear_prepared(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& prepared,
                                  const std::optional<at::Tensor>& bias = std::nullopt, std::string_view activation = "none",
                                  const std::optional<at::Tensor>& residual = std::nullopt,
                                  std::string_view precision = "highest") {
  static const auto op =
      detail::find<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                              std::string_view, const std::optional<at::Tensor>&, std::string_view)>("xgemm::linear_prepared");
  detail::check_forward_only("xgemm::linear_prepared", input, weight, bias, residual);
  return op.call(input, weight, prepared, bias, activation, residual, precision);
}

/// activation(input @ weight_gate^T + bias_gate) * (input @ weight_up^T + bias_up), for input (..., K), weights (N, K) and biases
/// (N): SwiGLU with "silu", GEGLU with "gelu". activation: as in linear.
inline at::Tensor gated_linear(const at::Tensor& input, const at::Tensor& weight_gate, const at::Tensor& weight_up,
                               const std::optional<at::Tensor>& bias_gate = std::nullopt,
                               const std::optional<at::Tensor>& bias_up = std::nullopt, std::string_view activation = "silu",
                               std::string_view precision = "highest") {
  static const auto op =
      detail::find<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                              const std::optional<at::Tensor>&, std::string_view, std::string_view)>("xgemm::gated_linear");
  detail::check_forward_only("xgemm::gated_linear", input, weight_gate, weight_up, bias_gate, bias_up);
  return op.call(input, weight_gate, weight_up, bias_gate, bias_up, activation, precision);
}

// ---- reductions --------------------------------------------------------------------------------------------------------------
// Over the dims given, all of them when none is; any strides. Sums are kept in float32 or wider; `keepdim` keeps reduced dims
// as 1.

namespace detail {
using Reduce = at::Tensor(const at::Tensor&, at::OptionalIntArrayRef, bool);
using ReduceTo = at::Tensor(const at::Tensor&, at::OptionalIntArrayRef, bool, std::optional<at::ScalarType>);
using ReduceToIndex = at::Tensor(const at::Tensor&, std::optional<std::int64_t>, bool);
}  // namespace detail

/// Sum; `dtype` is the result's dtype (default: the input's, int64 for integers and bool).
inline at::Tensor sum(const at::Tensor& input, at::OptionalIntArrayRef dim = std::nullopt, bool keepdim = false,
                      std::optional<at::ScalarType> dtype = std::nullopt) {
  static const auto op = detail::find<detail::ReduceTo>("xgemm::sum");
  detail::check_forward_only("xgemm::sum", input);
  return op.call(input, dim, keepdim, dtype);
}

/// Arithmetic mean of a floating input; `dtype` is the result's dtype.
inline at::Tensor mean(const at::Tensor& input, at::OptionalIntArrayRef dim = std::nullopt, bool keepdim = false,
                       std::optional<at::ScalarType> dtype = std::nullopt) {
  static const auto op = detail::find<detail::ReduceTo>("xgemm::mean");
  detail::check_forward_only("xgemm::mean", input);
  return op.call(input, dim, keepdim, dtype);
}

/// Largest value; NaN if there is one.
inline at::Tensor amax(const at::Tensor& input, at::OptionalIntArrayRef dim = std::nullopt, bool keepdim = false) {
  static const auto op = detail::find<detail::Reduce>("xgemm::amax");
  detail::check_forward_only("xgemm::amax", input);
  return op.call(input, dim, keepdim);
}

/// Smallest value; NaN if there is one.
inline at::Tensor amin(const at::Tensor& input, at::OptionalIntArrayRef dim = std::nullopt, bool keepdim = false) {
  static const auto op = detail::find<detail::Reduce>("xgemm::amin");
  detail::check_forward_only("xgemm::amin", input);
  return op.call(input, dim, keepdim);
}

/// log(sum(exp(input))), without overflow.
inline at::Tensor logsumexp(const at::Tensor& input, at::OptionalIntArrayRef dim = std::nullopt, bool keepdim = false) {
  static const auto op = detail::find<detail::Reduce>("xgemm::logsumexp");
  detail::check_forward_only("xgemm::logsumexp", input);
  return op.call(input, dim, keepdim);
}

/// Cross-entropy of logits (C), (N, C) or (N, C, ...) and class indices of that shape without C; `reduction`: "none", "mean"
/// (over the targets other than `ignore_index`), "sum".
inline at::Tensor cross_entropy(const at::Tensor& input, const at::Tensor& target, std::int64_t ignore_index = -100,
                                std::string_view reduction = "mean", double label_smoothing = 0.0) {
  static const auto op = detail::find<at::Tensor(const at::Tensor&, const at::Tensor&, std::int64_t, std::string_view, double)>(
      "xgemm::cross_entropy");
  detail::check_forward_only("xgemm::cross_entropy", input);
  return op.call(input, target, ignore_index, reduction, label_smoothing);
}

/// int64 index of the first largest value (the first NaN if there is one), into the flattened input when `dim` is not given.
inline at::Tensor argmax(const at::Tensor& input, std::optional<std::int64_t> dim = std::nullopt, bool keepdim = false) {
  static const auto op = detail::find<detail::ReduceToIndex>("xgemm::argmax");
  return op.call(input, dim, keepdim);
}

/// int64 index of the first smallest value (the first NaN if there is one), into the flattened input when `dim` is not given.
inline at::Tensor argmin(const at::Tensor& input, std::optional<std::int64_t> dim = std::nullopt, bool keepdim = false) {
  static const auto op = detail::find<detail::ReduceToIndex>("xgemm::argmin");
  return op.call(input, dim, keepdim);
}

// ---- softmax -----------------------------------------------------------------------------------------------------------------

namespace detail {
using Softmax = at::Tensor(const at::Tensor&, std::int64_t, std::optional<at::ScalarType>);
}

/// Softmax over one dim of any length; `dtype` converts the input first.
inline at::Tensor softmax(const at::Tensor& input, std::int64_t dim, std::optional<at::ScalarType> dtype = std::nullopt) {
  static const auto op = detail::find<detail::Softmax>("xgemm::softmax");
  detail::check_forward_only("xgemm::softmax", input);
  return op.call(input, dim, dtype);
}

/// Logarithm of the softmax over one dim of any length; `dtype` converts the input first.
inline at::Tensor log_softmax(const at::Tensor& input, std::int64_t dim, std::optional<at::ScalarType> dtype = std::nullopt) {
  static const auto op = detail::find<detail::Softmax>("xgemm::log_softmax");
  detail::check_forward_only("xgemm::log_softmax", input);
  return op.call(input, dim, dtype);
}

/// softmax(scale * input + mask) over one dim; `mask` broadcasts to the input: bool (true takes part), of its dtype, or fp32.
inline at::Tensor scaled_masked_softmax(const at::Tensor& input, const std::optional<at::Tensor>& mask = std::nullopt,
                                        double scale = 1, std::int64_t dim = -1) {
  static const auto op = detail::find<at::Tensor(const at::Tensor&, const std::optional<at::Tensor>&, double, std::int64_t)>(
      "xgemm::scaled_masked_softmax");
  detail::check_forward_only("xgemm::scaled_masked_softmax", input, mask);
  return op.call(input, mask, scale, dim);
}

/// The k (0 to 64) largest elements of the softmax over `dim` in descending order, and their int64 indices; of equal elements the
/// first. With `renormalize` divided by their sum. `dtype` converts the input first.
inline std::tuple<at::Tensor, at::Tensor> topk_softmax(const at::Tensor& input, std::int64_t k, std::int64_t dim = -1,
                                                       bool renormalize = true,
                                                       std::optional<at::ScalarType> dtype = std::nullopt) {
  static const auto op = detail::find<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, std::int64_t, std::int64_t, bool,
                                                                         std::optional<at::ScalarType>)>("xgemm::topk_softmax");
  detail::check_forward_only("xgemm::topk_softmax", input);
  return op.call(input, k, dim, renormalize, dtype);
}

// ---- attention ---------------------------------------------------------------------------------------------------------------

/// The optional arguments of attention, named: attention(q, k, v, {.is_causal = true}). That is C++20; in C++17 fill an object.
struct AttentionOptions {
  std::optional<at::Tensor> attn_mask;  ///< bool (true takes part) or additive; broadcasts to (..., H, Sq, Sk)
  bool is_causal = false;
  std::optional<double> scale;                     ///< default 1 / sqrt(D)
  bool enable_gqa = false;                         ///< query heads are a multiple of key heads
  std::string_view causal_alignment = "top_left";  ///< or "bottom_right"
  std::array<std::int64_t, 2> window = {-1, -1};   ///< keys to the left and to the right that a query sees; -1: all
  double softcap = 0;                              ///< scores become softcap * tanh(score / softcap); 0: they stay
  std::optional<at::Tensor> sinks;                 ///< broadcasts to (..., H): the logit of one more key, without a value
  std::string_view precision = "highest";          ///< of float32 inputs: see matmul
};

namespace detail {
template <class Result>
using Attention = Result(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, bool,
                         std::optional<double>, bool, std::string_view, at::IntArrayRef, double, const std::optional<at::Tensor>&,
                         std::string_view);
}

/// scaled_dot_product_attention for query (..., H, Sq, D), key (..., H, Sk, D), value (..., H, Sk, Dv), with enable_gqa fewer
/// heads of key and value; D and Dv up to 576.
inline at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const AttentionOptions& options = {}) {
  static const auto op = detail::find<detail::Attention<at::Tensor>>("xgemm::attention");
  detail::check_forward_only("xgemm::attention", query, key, value, options.attn_mask, options.sinks);
  return op.call(query, key, value, options.attn_mask, options.is_causal, options.scale, options.enable_gqa,
                 options.causal_alignment, options.window, options.softcap, options.sinks, options.precision);
}

/// The same with at::scaled_dot_product_attention's order of arguments. dropout_p has to be 0.
inline at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const std::optional<at::Tensor>& attn_mask, double dropout_p, bool is_causal = false,
                            std::optional<double> scale = std::nullopt, bool enable_gqa = false) {
  if (dropout_p != 0) throw std::runtime_error("xgemm::attention: expected dropout_p of 0, got " + std::to_string(dropout_p));
  AttentionOptions options;
  options.attn_mask = attn_mask;
  options.is_causal = is_causal;
  options.scale = scale;
  options.enable_gqa = enable_gqa;
  return attention(query, key, value, options);
}

/// The same, with the natural log-sum-exp of each row's scaled scores, its sink among them: (..., H, Sq) in float32 (float64 for
/// float64 inputs).
inline std::tuple<at::Tensor, at::Tensor> attention_lse(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                                        const AttentionOptions& options = {}) {
  static const auto op = detail::find<detail::Attention<std::tuple<at::Tensor, at::Tensor>>>("xgemm::attention_lse");
  detail::check_forward_only("xgemm::attention_lse", query, key, value, options.attn_mask, options.sinks);
  return op.call(query, key, value, options.attn_mask, options.is_causal, options.scale, options.enable_gqa,
                 options.causal_alignment, options.window, options.softcap, options.sinks, options.precision);
}

/// The optional arguments of attention_varlen and attention_with_cache, named.
struct SequenceOptions {
  std::optional<double> scale;                    ///< default 1 / sqrt(D)
  bool is_causal = false;                         ///< the last query sees all keys of its sequence
  std::array<std::int64_t, 2> window = {-1, -1};  ///< keys to the left and to the right of its own that a query sees; -1: all
  double softcap = 0;                             ///< scores become softcap * tanh(score / softcap); 0: they stay
  std::optional<at::Tensor> sinks;                ///< (H): the logit of one more key, without a value
  std::optional<at::Tensor> block_table;          ///< int32 (sequences, columns): keys and values are pages (pages, page, Hkv, D)
  std::optional<at::Tensor> seqused_k;            ///< of attention_varlen: int32 (sequences), keys in use
  std::optional<at::Tensor> key, value;           ///< of attention_with_cache: (B, new, Hkv, D), appended
  std::string_view precision = "highest";         ///< of float32 inputs: see matmul
};

namespace detail {
template <class Result>
using Varlen = Result(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                      const std::optional<at::Tensor>&, c10::SymInt, c10::SymInt, std::optional<double>, bool, at::IntArrayRef,
                      double, const std::optional<at::Tensor>&, const std::optional<at::Tensor>&,
                      const std::optional<at::Tensor>&, std::string_view);
template <class Result>
using WithCache = Result(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                         const std::optional<at::Tensor>&, const std::optional<at::Tensor>&, const std::optional<at::Tensor>&,
                         std::optional<double>, bool, at::IntArrayRef, double, const std::optional<at::Tensor>&,
                         std::string_view);

template <class Result>
Result varlen(const char* name, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
              const at::Tensor& cu_seq_q, const std::optional<at::Tensor>& cu_seq_k, std::int64_t max_q, std::int64_t max_k,
              const SequenceOptions& o) {
  static const auto op = find<Varlen<Result>>(name);
  check_forward_only(name, query, key, value, o.sinks);
  return op.call(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, o.scale, o.is_causal, o.window, o.softcap, o.sinks,
                 o.seqused_k, o.block_table, o.precision);
}

template <class Result>
Result with_cache(const char* name, const at::Tensor& query, const at::Tensor& key_cache, const at::Tensor& value_cache,
                  const at::Tensor& cache_seqlens, const SequenceOptions& o) {
  static const auto op = find<WithCache<Result>>(name);
  check_forward_only(name, query, key_cache, value_cache, o.key, o.value, o.sinks);
  return op.call(query, key_cache, value_cache, cache_seqlens, o.key, o.value, o.block_table, o.scale, o.is_causal, o.window,
                 o.softcap, o.sinks, o.precision);
}
}  // namespace detail

/// Attention of packed sequences: query (tokens, H, D), key and value (tokens, Hkv, D); sequence i has the rows cu_seq_q[i] to
/// cu_seq_q[i + 1] - 1, at most max_q of them. With a block_table cu_seq_k is not read, and seqused_k gives lengths.
inline at::Tensor attention_varlen(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                   const at::Tensor& cu_seq_q, const std::optional<at::Tensor>& cu_seq_k, std::int64_t max_q,
                                   std::int64_t max_k, const SequenceOptions& options = {}) {
  return detail::varlen<at::Tensor>("xgemm::attention_varlen", query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, options);
}

/// The same, with the log-sum-exp (H, tokens).
inline std::tuple<at::Tensor, at::Tensor> attention_varlen_lse(const at::Tensor& query, const at::Tensor& key,
                                                               const at::Tensor& value, const at::Tensor& cu_seq_q,
                                                               const std::optional<at::Tensor>& cu_seq_k, std::int64_t max_q,
                                                               std::int64_t max_k, const SequenceOptions& options = {}) {
  return detail::varlen<std::tuple<at::Tensor, at::Tensor>>("xgemm::attention_varlen_lse", query, key, value, cu_seq_q, cu_seq_k,
                                                            max_q, max_k, options);
}

/// Attention of query (B, Sq, H, D) over the first cache_seqlens[i] rows of caches (B, S, Hkv, D), or of pages, and over
/// options.key and options.value, which are written behind these rows.
inline at::Tensor attention_with_cache(const at::Tensor& query, const at::Tensor& key_cache, const at::Tensor& value_cache,
                                       const at::Tensor& cache_seqlens, const SequenceOptions& options = {}) {
  return detail::with_cache<at::Tensor>("xgemm::attention_with_cache", query, key_cache, value_cache, cache_seqlens, options);
}

/// The same, with the log-sum-exp (B, H, Sq).
inline std::tuple<at::Tensor, at::Tensor> attention_with_cache_lse(const at::Tensor& query, const at::Tensor& key_cache,
                                                                   const at::Tensor& value_cache, const at::Tensor& cache_seqlens,
                                                                   const SequenceOptions& options = {}) {
  return detail::with_cache<std::tuple<at::Tensor, at::Tensor>>("xgemm::attention_with_cache_lse", query, key_cache, value_cache,
                                                                cache_seqlens, options);
}

}  // namespace xgemm
