// scaled_dot_product_attention without a Sq x Sk buffer: argument checks, the CPU path, and the CUDA path's problem -> plan ->
// launch.
#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "torch/aten.h"
#include "torch/register.h"

namespace xgemm {
namespace {

constexpr std::int64_t kMaxHeadSize = 256;
constexpr std::int64_t kMaxLength =
    std::numeric_limits<std::int32_t>::max() - 1024;  // positions fit 32 bits, a tile beyond them too

/// A checked call. `batch` is everything in front of the last two dims, broadcast, heads last.
struct Arguments {
  TensorView query, key, value;
  std::optional<TensorView> mask;
  Shape batch;
  std::int64_t sq, sk, d, dv;
  std::int64_t key_group, value_group;  ///< query heads that share one head of key and of value; 1 unless enable_gqa
  double scale;
  bool causal;
  std::int64_t shift;  ///< when causal, row i sees keys 0 .. i + shift

  std::int64_t batches() const {
    std::int64_t n = 1;
    for (auto s : batch) n *= s;
    return n;
  }
};

ShapeRef batch_of(const TensorView& v) {
  return v.sizes.first(v.sizes.size() - 2);
}

/// Query heads per head of `kv`, after checking that they divide evenly.
std::int64_t group_size(const TensorView& query, const TensorView& kv) {
  check(query.dim() >= 3 && kv.dim() >= 3, query.op, "expected query and ", kv.name, " of shape (..., heads, length, head size) ",
        "with enable_gqa, got shapes ", to_string(query.sizes), " and ", to_string(kv.sizes));
  const std::int64_t heads = query.size(-3), shared = kv.size(-3);
  check(heads == shared || (shared > 0 && heads % shared == 0), query.op,
        "expected the number of query heads to be a multiple of ", kv.name, " heads with enable_gqa, got ", heads, " and ",
        shared);
  return shared == heads ? 1 : heads / shared;
}

/// The batch dims of `kv` as the query's heads see them.
Shape grouped_batch(const TensorView& kv, std::int64_t group) {
  Shape batch(batch_of(kv).begin(), batch_of(kv).end());
  if (group != 1) batch.back() *= group;
  return batch;
}

Shape broadcast_batch(const TensorView& first, ShapeRef a, const TensorView& second, ShapeRef b) {
  const auto heads = [](ShapeRef s) { return s.empty() ? 1 : s.back(); };
  check(heads(a) == heads(b) || heads(a) == 1 || heads(b) == 1, first.op, "expected ", first.name, " and ", second.name,
        " of equal heads (pass enable_gqa=True when query heads share them), got shapes ", to_string(first.sizes), " and ",
        to_string(second.sizes));
  return broadcast(first, a, second, b);
}

void check_mask(const TensorView& query, const TensorView& mask, ShapeRef scores) {
  check_same_device(query, mask);
  check(mask.dtype == ScalarType::Bool || mask.dtype == ScalarType::Float || mask.dtype == query.dtype, query.op,
        "expected attn_mask of dtype bool, float32 or query's ", to_string(query.dtype), ", got ", to_string(mask.dtype));
  bool fits = mask.sizes.size() <= scores.size();
  for (std::size_t i = 0; fits && i < mask.sizes.size(); ++i) {
    const std::int64_t have = mask.sizes[mask.sizes.size() - 1 - i];
    fits = have == 1 || have == scores[scores.size() - 1 - i];
  }
  check(fits, query.op, "expected attn_mask to broadcast to ", to_string(scores), ", got shape ", to_string(mask.sizes));
}

Arguments check_arguments(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                          const std::optional<Tensor>& attn_mask, bool is_causal, std::optional<double> scale, bool enable_gqa,
                          const std::string& alignment) {
  Arguments a{.query = view(op, "query", query),
              .key = view(op, "key", key),
              .value = view(op, "value", value),
              .mask = {},
              .batch = {},
              .sq = 0,
              .sk = 0,
              .d = 0,
              .dv = 0,
              .key_group = 1,
              .value_group = 1,
              .scale = 1,
              .causal = is_causal,
              .shift = 0};
  for (const TensorView* v : {&a.query, &a.key, &a.value}) {
    check_same_device(a.query, *v);
    check_dtype(*v, kFloating);
    check_same_dtype(a.query, *v);
    check(v->dim() >= 2, op, "expected ", v->name, " of shape (..., heads, length, head size), got shape ", to_string(v->sizes));
  }
  a.sq = a.query.size(-2), a.sk = a.key.size(-2), a.d = a.query.size(-1), a.dv = a.value.size(-1);
  check(a.key.size(-1) == a.d, op, "expected query and key of one head size, got ", a.d, " and ", a.key.size(-1));
  check(a.value.size(-2) == a.sk, op, "expected key and value of one length, got ", a.sk, " and ", a.value.size(-2));
  check(a.d <= kMaxHeadSize && a.dv <= kMaxHeadSize, op, "expected head sizes up to ", kMaxHeadSize, ", got query ", a.d,
        " and value ", a.dv);
  check(a.sq <= kMaxLength && a.sk <= kMaxLength, op, "expected lengths up to ", kMaxLength, ", got query ", a.sq, " and key ",
        a.sk);

  if (enable_gqa) a.key_group = group_size(a.query, a.key), a.value_group = group_size(a.query, a.value);
  const Shape key_batch = grouped_batch(a.key, a.key_group), value_batch = grouped_batch(a.value, a.value_group);
  a.batch = broadcast_batch(a.query, batch_of(a.query), a.key, key_batch);
  a.batch = broadcast_batch(a.query, a.batch, a.value, value_batch);

  if (attn_mask) {
    check(!is_causal, op, "expected attn_mask or is_causal, got both");
    Shape scores = a.batch;
    scores.insert(scores.end(), {a.sq, a.sk});
    a.mask = view(op, "attn_mask", *attn_mask);
    check_mask(a.query, *a.mask, scores);
  }
  check(alignment == "top_left" || alignment == "bottom_right", op,
        "expected causal_alignment to be \"top_left\" or \"bottom_right\", got \"", alignment, "\"");
  if (is_causal && alignment == "bottom_right") a.shift = a.sk - a.sq;
  a.scale = scale ? *scale : a.d ? 1 / std::sqrt(static_cast<double>(a.d)) : 1;
  check(std::isfinite(a.scale), op, "expected a finite scale, got ", a.scale);
  return a;
}

struct Result {
  Tensor output;
  std::optional<Tensor> lse;
};

ScalarType accumulator(const Arguments& a) {
  return a.query.dtype == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

/// Uninitialised outputs: (batch..., Sq, Dv) and, if wanted, (batch..., Sq).
Result empty_result(const Arguments& a, bool want_lse) {
  Shape shape = a.batch;
  shape.push_back(a.sq);
  Result r{.output = Tensor(), .lse = {}};
  if (want_lse) r.lse = empty(shape, accumulator(a), a.query);
  shape.push_back(a.dv);
  r.output = empty(shape, a.query.dtype, a.query);
  return r;
}

// ---- CPU: ATen over blocks of query rows, in fp32 or wider ------------------------------------------------------------------

/// (batch..., rows, cols) of `v` in the accumulator type, flattened to (batches, rows, cols).
Tensor flattened(const Arguments& a, const TensorView& v, std::int64_t group) {
  Tensor x = torch::stable::to(*v.tensor, accumulator(a));
  if (group != 1)
    x = aten("repeat_interleave", "self_int", x, group, std::optional<std::int64_t>(-3), std::optional<std::int64_t>());
  Shape shape = a.batch;
  shape.insert(shape.end(), {v.size(-2), v.size(-1)});
  x = aten("expand", "", x, shape, false);
  return torch::stable::contiguous(torch::stable::reshape(x, std::array{a.batches(), v.size(-2), v.size(-1)}));
}

Result attention_cpu(const Arguments& a, bool want_lse) {
  Result r = empty_result(a, want_lse);
  const std::int64_t n = a.batches();
  if (n * a.sq == 0) return r;
  const ScalarType type = accumulator(a);
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor zero = scalar(0, type), minus_inf = scalar(-inf, type);
  Tensor query = aten("mul", "Tensor", flattened(a, a.query, 1), scalar(a.scale, type));
  Tensor key = flattened(a, a.key, a.key_group), value = flattened(a, a.value, a.value_group);
  Tensor output = torch::stable::view(r.output, std::array{n, a.sq, a.dv});
  std::optional<Tensor> lse, mask;
  if (r.lse) lse = torch::stable::view(*r.lse, std::array{n, a.sq});
  if (a.mask) {
    Shape scores = a.batch;
    scores.insert(scores.end(), {a.sq, a.sk});
    mask = aten("expand", "", *a.mask->tensor, scores, false);
  }

  constexpr std::int64_t kScores = 1 << 22;  // elements of one block of scores: stays near the last cache, never Sq x Sk
  const std::int64_t block = std::clamp<std::int64_t>(kScores / std::max<std::int64_t>(n * a.sk, 1), 1, 128);
  for (std::int64_t row = 0; row < a.sq; row += block) {
    const std::int64_t rows = std::min(block, a.sq - row);
    const std::int64_t cols = a.causal ? std::clamp<std::int64_t>(row + rows + a.shift, 0, a.sk) : a.sk;
    Tensor scores = aten("bmm", "", torch::stable::narrow(query, 1, row, rows),
                         torch::stable::transpose(torch::stable::narrow(key, 1, 0, cols), 1, 2));
    if (a.causal) {
      const Tensor ones = torch::stable::full(std::array{rows, cols}, 1, ScalarType::Bool);
      scores = aten("masked_fill", "Tensor", scores, aten("triu", "", ones, row + a.shift + 1), minus_inf);
    }
    if (mask) {
      Tensor bias = torch::stable::narrow(*mask, -2, row, rows);
      // A boolean mask is the additive mask 0 / -inf, as in SDPA: a NaN score stays NaN.
      bias = a.mask->dtype == ScalarType::Bool ? aten("where", "self", bias, zero, minus_inf) : torch::stable::to(bias, type);
      bias = torch::stable::reshape(bias, std::array{n, rows, cols});
      scores = torch::stable::subtract(scores, bias, -1);
    }
    if (lse) {
      const Tensor block_lse = aten("logsumexp", "", scores, Shape{-1}, false);
      Tensor target = torch::stable::narrow(*lse, 1, row, rows);
      torch::stable::copy_(target, block_lse);
    }
    const Tensor weights = aten("_safe_softmax", "", scores, std::int64_t{-1}, std::optional<ScalarType>());
    Tensor target = torch::stable::narrow(output, 1, row, rows);
    torch::stable::copy_(target, aten("bmm", "", weights, torch::stable::narrow(value, 1, 0, cols)));
  }
  return r;
}

// ---- ops --------------------------------------------------------------------------------------------------------------------

Result run(const Arguments& a, bool want_lse) {
  if (!a.query.cuda) return attention_cpu(a, want_lse);
  fail(a.query.op, "expected tensors on cpu: this build has no CUDA kernels, got ", device_name(a.query));
}

Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& attn_mask,
                 bool is_causal, std::optional<double> scale, bool enable_gqa, const std::string& causal_alignment) {
  return run(check_arguments("attention", query, key, value, attn_mask, is_causal, scale, enable_gqa, causal_alignment), false)
      .output;
}

std::tuple<Tensor, Tensor> attention_lse(const Tensor& query, const Tensor& key, const Tensor& value,
                                         const std::optional<Tensor>& attn_mask, bool is_causal, std::optional<double> scale,
                                         bool enable_gqa, const std::string& causal_alignment) {
  Result r =
      run(check_arguments("attention_lse", query, key, value, attn_mask, is_causal, scale, enable_gqa, causal_alignment), true);
  return {r.output, *r.lse};
}

XGEMM_REGISTER(xgemm, attention, attention);
XGEMM_REGISTER(xgemm, attention_lse, attention_lse);

}  // namespace
}  // namespace xgemm
