#include "attention/call.h"

#include <algorithm>
#include <cmath>

namespace xgemm::attention {
namespace {

ShapeRef batch_of(const TensorView& v) { return v.sizes.first(v.sizes.size() - 2); }

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

void check_broadcasts(const TensorView& v, ShapeRef to) {
  check(broadcasts_to(v.sizes, to), v.op, "expected ", v.name, " to broadcast to ", to_string(to), ", got shape ",
        to_string(v.sizes));
}

/// Sets the keys that a row sees from is_causal, window and causal_alignment.
void limit_keys(Call& a, const Options& o) {
  const char* const op = a.query.op;
  check(o.causal_alignment == "top_left" || o.causal_alignment == "bottom_right", op,
        "expected causal_alignment to be \"top_left\" or \"bottom_right\", got \"", o.causal_alignment, "\"");
  check_window(op, o.window);
  const std::int64_t position = o.causal_alignment == "bottom_right" ? a.sk - a.sq : 0;  // of row 0
  const std::int64_t left = o.window[0], right = o.is_causal ? 0 : o.window[1];
  // Clamping changes nothing for the call's rows.
  a.first = left < 0 ? -a.sq : std::max(position - std::min(left, a.sq + a.sk), -a.sq);
  a.last = right < 0 ? a.sk : std::min(position + std::min(right, a.sq + a.sk) + 1, a.sk);
}

}  // namespace

double checked_scale(const TensorView& query, std::optional<double> given, double softcap) {
  const std::int64_t d = query.size(-1);
  const double scale = given ? *given : d ? 1 / std::sqrt(static_cast<double>(d)) : 1;
  check(std::isfinite(scale), query.op, "expected a finite scale, got ", scale);
  check(std::isfinite(softcap) && softcap >= 0, query.op, "expected a finite softcap from 0 on, got ", softcap);
  check_range(query, "scale", scale);
  check_range(query, "softcap", softcap);
  if (softcap != 0) {
    const double inside = scale / softcap;  // of tanh
    check(std::isfinite(inside), query.op, "expected scale / softcap to be finite, got ", scale, " / ", softcap);
    check_range(query, "scale / softcap", inside);
  }
  return scale;
}

void check_window(const char* op, const std::vector<std::int64_t>& window) {
  check(window.size() == 2 && std::min(window[0], window[1]) >= -1, op,
        "expected window to be two numbers of keys, -1 for no limit, got ", to_string(window));
}

TensorView checked_sinks(const TensorView& query, const Tensor& given) {
  const TensorView sinks = view(query.op, "sinks", given);
  check_same_device(query, sinks);
  check(sinks.dtype == ScalarType::Float || sinks.dtype == query.dtype, query.op, "expected sinks of dtype float32 or query's ",
        to_string(query.dtype), ", got ", to_string(sinks.dtype));
  return sinks;
}

Call check_arguments(const char* op, const Tensor& query, const Tensor& key, const Tensor& value, const Options& o) {
  Call a{};
  a.query = view(op, "query", query), a.key = view(op, "key", key), a.value = view(op, "value", value);
  a.precision = parse_precision(op, o.precision), a.softcap = o.softcap;
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

  if (o.enable_gqa) a.key_group = group_size(a.query, a.key), a.value_group = group_size(a.query, a.value);
  const Shape key_batch = grouped_batch(a.key, a.key_group), value_batch = grouped_batch(a.value, a.value_group);
  a.batch = broadcast_batch(a.query, batch_of(a.query), a.key, key_batch);
  a.batch = broadcast_batch(a.query, a.batch, a.value, value_batch);

  if (o.attn_mask) {
    check(!o.is_causal, op, "expected attn_mask or is_causal, got both");
    a.mask = view(op, "attn_mask", *o.attn_mask);
    check_same_device(a.query, *a.mask);
    check(a.mask->dtype == ScalarType::Bool || a.mask->dtype == ScalarType::Float || a.mask->dtype == a.query.dtype, op,
          "expected attn_mask of dtype bool, float32 or query's ", to_string(a.query.dtype), ", got ", to_string(a.mask->dtype));
    check_broadcasts(*a.mask, a.batch_and({a.sq, a.sk}));
  }
  limit_keys(a, o);
  // A query that is a transposed projection: torch.transpose(output, -2, -3) is contiguous then, as after torch's fast backends.
  // The fake has this rule too (torch_ext/fake.py, _heads_beside).
  a.heads_beside =
      a.query.dim() >= 3 && a.query.size(-3) > 1 && a.sq > 1 && a.query.stride(-3) > 0 && a.query.stride(-3) < a.query.stride(-2);
  a.scale = checked_scale(a.query, o.scale, o.softcap);
  if (o.sinks) {
    a.sinks = checked_sinks(a.query, *o.sinks);
    check_broadcasts(*a.sinks, a.batch);
  }
  return a;
}

bool is_latent(const TensorView& key, const TensorView& value) {
  const auto alike = [](ShapeRef x, ShapeRef y) { return std::equal(x.begin(), x.end() - 1, y.begin(), y.end() - 1); };
  return value.data == key.data && value.size(-1) <= key.size(-1) && alike(key.sizes, value.sizes) &&
         std::equal(key.strides.begin(), key.strides.end(), value.strides.begin(), value.strides.end());
}

ScalarType accumulator(ScalarType dtype) { return dtype == ScalarType::Double ? ScalarType::Double : ScalarType::Float; }

Result empty_result(const Call& a, bool want_lse) {
  Shape shape = a.batch_and({a.sq, a.dv});
  Result r{.output = Tensor(), .lse = {}};
  if (want_lse) r.lse = empty(a.batch_and({a.sq}), accumulator(a.query.dtype), a.query);
  if (a.heads_beside) std::swap(shape.end()[-2], shape.end()[-3]);
  r.output = empty(shape, a.query.dtype, a.query);
  if (a.heads_beside) r.output = torch::stable::transpose(r.output, -2, -3);
  return r;
}

std::vector<BatchDim> merged(ShapeRef sizes, const std::array<Shape, kOperands>& strides, bool heads_apart) {
  std::vector<BatchDim> dims;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const bool heads = heads_apart && i + 1 == sizes.size();
    if (sizes[i] == 1 && !heads) continue;
    BatchDim now{sizes[i], {}};
    for (std::size_t o = 0; o < kOperands; ++o) now.strides[o] = strides[o][i];
    if (heads)
      dims.push_back(now);
    else
      append_merged(dims, now);
  }
  return dims;
}

std::array<Shape, kOperands> strides_of(const Call& a) {
  const Shape full = a.batch_and({a.sq, a.sk});
  const Shape none(full.size(), 0);
  const auto of = [&](const TensorView& v) { return broadcast_strides(v.sizes, v.strides, full); };
  Shape sinks = a.sinks ? broadcast_strides(a.sinks->sizes, a.sinks->strides, a.batch) : none;
  sinks.resize(full.size(), 0);
  return {of(a.query), of(a.key), of(a.value), a.mask ? of(*a.mask) : none, sinks};
}

}  // namespace xgemm::attention
