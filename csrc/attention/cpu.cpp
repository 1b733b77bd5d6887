// Attention on the CPU: by SDPA's kernel where its result is what docs/attention.md promises, else by ATen in blocks of rows.
#include <algorithm>
#include <cmath>
#include <utility>

#include "attention/call.h"
#include "torch/aten.h"

namespace xgemm::attention {
namespace {

// ---- SDPA's kernel -----------------------------------------------------------------------------------------------------------

/// The CPU's arithmetic type, except for half types that SDPA's kernel reads directly: never fewer bits than the accumulator's.
ScalarType arithmetic(const Call& a) {
  return a.query.dtype == ScalarType::Double || product_rounding() != Rounding::none ? ScalarType::Double : ScalarType::Float;
}

/// Do no two elements of `v` share memory?
bool apart(const TensorView& v) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // stride and size
  for (std::int64_t i = 0; i < v.dim(); ++i)
    if (v.size(i) > 1) dims.emplace_back(v.stride(i), v.size(i));
  std::sort(dims.begin(), dims.end());
  std::int64_t reach = 1;
  for (const auto& [stride, size] : dims) {
    if (stride < reach) return false;
    reach = stride * size;
  }
  return true;
}

/// Are all numbers of `v`, whose last dim is dense, finite (exponent not all ones)?
template <class Bits, Bits kExponent>
bool finite(const TensorView& v, const Bits* from, std::int64_t dim = 0) {
  if (dim + 1 < v.dim()) {
    const std::int64_t count = v.stride(dim) == 0 ? std::min<std::int64_t>(v.size(dim), 1) : v.size(dim);
    for (std::int64_t i = 0; i < count; ++i)
      if (!finite<Bits, kExponent>(v, from + i * v.stride(dim), dim + 1)) return false;
    return true;
  }
  unsigned bad = 0;
  for (std::int64_t i = 0; i < v.size(-1); ++i) bad |= (from[i] & kExponent) == kExponent;
  return bad == 0;
}
bool finite(const TensorView& v) {
  switch (v.dtype) {
    case ScalarType::Double: return finite<std::uint64_t, 0x7ff0000000000000>(v, static_cast<const std::uint64_t*>(v.data));
    case ScalarType::Float: return finite<std::uint32_t, 0x7f800000>(v, static_cast<const std::uint32_t*>(v.data));
    case ScalarType::Half: return finite<std::uint16_t, 0x7c00>(v, static_cast<const std::uint16_t*>(v.data));
    default: return finite<std::uint16_t, 0x7f80>(v, static_cast<const std::uint16_t*>(v.data));
  }
}

/// `v` in `type`, padded with zeros to `columns`; rows do not overlap, as BLAS needs. `copy` owns the result.
TensorView readable(const TensorView& v, ScalarType type, std::int64_t columns, Tensor& copy) {
  copy = converted(*v.tensor, type);
  if (v.size(-1) != columns) copy = torch::stable::pad(copy, {0, columns - v.size(-1)});
  TensorView x = view(v.op, v.name, copy);
  const bool rows = x.size(-2) == 1 || (x.stride(-2) >= x.size(-1) && x.stride(-2) <= std::numeric_limits<std::int32_t>::max());
  if (rows && (x.size(-1) == 1 || x.stride(-1) == 1)) return x;
  copy = aten("clone", "", copy, std::optional(torch::headeronly::MemoryFormat::Contiguous));
  return view(v.op, v.name, copy);
}

/// The mask as SDPA's kernel reads it: additive, of `type` (fp32 also with a half type), its last dim dense.
TensorView additive(const TensorView& mask, ScalarType type, Tensor& copy) {
  copy = *mask.tensor;
  if (mask.dtype == ScalarType::Bool)
    copy = aten("where", "self", copy, scalar(0, type), scalar(-std::numeric_limits<double>::infinity(), type));
  else if (mask.dtype != ScalarType::Float || type == ScalarType::Double)
    copy = torch::stable::to(copy, type);
  TensorView x = view(mask.op, mask.name, copy);
  if (x.dim() > 0 && x.size(-1) != 1 && x.stride(-1) != 1) {
    copy = torch::stable::contiguous(copy);
    x = view(mask.op, mask.name, copy);
  }
  return x;
}

/// For each row: is its whole mask -inf?
Tensor hidden_rows(const Call& a) {
  const Tensor& mask = *a.mask->tensor;
  Tensor largest = a.mask->dim() == 0 ? mask : aten("amax", "", mask, Shape{-1}, false);
  largest = aten("eq", "Tensor", largest, scalar(-std::numeric_limits<double>::infinity(), a.mask->dtype));
  return torch::stable::contiguous(aten("expand", "", largest, a.batch_and({a.sq}), false));
}

/// Is every row of SDPA's output right? For a row without a visible key SDPA gives 0 for output and log-sum-exp, but also for a
/// row of NaN scores, which it can overlook; with Inf and NaN the exponentials decide. The mask has to hide such rows: then sets
/// their log-sum-exp to -inf.
template <class T, class Bits>
bool right_rows(const Call& a, const Tensor& lse, const Tensor& output) {
  T* const l = static_cast<T*>(lse.data_ptr());
  const Bits* const o = static_cast<const Bits*>(output.data_ptr());
  std::optional<Tensor> hidden;
  for (std::int64_t i = 0, rows = a.batches() * a.sq; i < rows; ++i) {
    if (std::isfinite(l[i]) && (l[i] != 0 || static_cast<Bits>(o[i * a.dv] << 1) != 0)) continue;
    if (!a.mask || l[i] != 0) return false;
    if (!hidden) hidden = hidden_rows(a);
    if (!static_cast<const bool*>(hidden->data_ptr())[i]) return false;
    l[i] = -std::numeric_limits<T>::infinity();
  }
  return true;
}

/// Adds each row's sink to its log-sum-exp, (batches, rows); returns the factor for the row's other weights, (batches, rows, 1).
Tensor add_sinks(const Call& a, Tensor& lse, std::int64_t rows, ScalarType type) {
  const std::int64_t n = a.batches();
  Tensor sinks = aten("expand", "", torch::stable::to(*a.sinks->tensor, type), a.batch, false);
  sinks = torch::stable::reshape(sinks, std::array{n, std::int64_t{1}, std::int64_t{1}});
  Tensor both = empty(Shape{n, rows, 2}, type, a.query);
  Tensor keys = torch::stable::narrow(both, 2, 0, 1), sink = torch::stable::narrow(both, 2, 1, 1);
  torch::stable::copy_(keys, torch::stable::reshape(lse, std::array{n, rows, std::int64_t{1}}));
  torch::stable::copy_(sink, aten("expand", "", sinks, Shape{n, rows, 1}, false));
  lse = aten("logsumexp", "", both, Shape{-1}, false);
  Tensor weights = aten("_safe_softmax", "", both, std::int64_t{-1}, std::optional<ScalarType>());
  return torch::stable::narrow(weights, 2, 0, 1);
}

/// The operands' batch dims, at least two, as SDPA's kernel takes. Query heads that share a key head form a dim of their own.
std::vector<BatchDim> batch_dims(const Call& a) {
  Shape sizes = a.batch;
  std::array<Shape, kOperands> strides = strides_of(a);
  if (a.key_group != 1) {
    const auto heads = static_cast<std::ptrdiff_t>(sizes.size()) - 1;
    sizes.back() /= a.key_group;
    sizes.push_back(a.key_group);
    for (std::size_t o = 0; o < strides.size(); ++o) {
      const bool shared = o == 1 || o == 2;
      const auto at = strides[o].begin() + heads;
      const std::int64_t step = *at;
      if (!shared) *at *= a.key_group;
      strides[o].insert(at + 1, shared ? 0 : step);
    }
  }
  std::vector<BatchDim> dims = merged(sizes, strides, false);
  while (dims.size() < 2) dims.push_back({1, {}});
  return dims;
}

/// The result of `call` from SDPA's for `a`, if it is right.
std::optional<Result> result(const Call& call, const Call& a, Tensor output, Tensor lse, bool want_lse) {
  const ScalarType own = call.query.dtype, type = a.query.dtype;
  const bool right = type == ScalarType::Double  ? right_rows<double, std::uint64_t>(a, lse, output)
                     : type == ScalarType::Float ? right_rows<float, std::uint32_t>(a, lse, output)
                                                 : right_rows<float, std::uint16_t>(a, lse, output);
  if (!right || !finite(view(a.query.op, "output", output)))
    return std::nullopt;  // NaN, or sums that overflowed before the division
  if (call.sinks)
    output = aten("mul", "Tensor", torch::stable::view(output, std::array{a.batches(), a.sq, a.dv}),
                  add_sinks(call, lse, a.sq, accumulator(type)));
  if (a.dv != call.dv) output = torch::stable::contiguous(torch::stable::narrow(output, -1, 0, call.dv));
  output = converted(output, own);
  const auto in_shape = [](const Tensor& t, const Shape& shape) { return strided(t, shape, contiguous_strides(shape)); };
  Result r{.output = in_shape(output, a.batch_and({a.sq, call.dv})), .lse = {}};
  if (want_lse) r.lse = in_shape(converted(lse, accumulator(own)), a.batch_and({a.sq}));
  if (!call.heads_beside) return r;
  Result beside = empty_result(call, false);
  torch::stable::copy_(beside.output, r.output);
  r.output = beside.output;
  return r;
}

std::optional<Result> attention_by_sdpa(const Call& call, bool want_lse) {
  if (call.d == 0 || call.dv == 0 || call.sk == 0 || call.key_group != call.value_group) return std::nullopt;
  const bool causal = !call.sees_all();
  if (causal && (call.first + call.sq > 1 || call.last != 1 || call.mask || call.scale <= 0))
    return std::nullopt;  // SDPA's causal row i sees keys 0 .. i, and it scales masked scores
  if (call.softcap != 0) return std::nullopt;
  // Half types are passed directly if this CPU multiplies them: exact enough for the output, not for a log-sum-exp in fp32.
  const ScalarType own = call.query.dtype;
  const bool as_is = own == ScalarType::Double || (own != ScalarType::Float && !want_lse && !call.sinks && multiplies(own));
  const ScalarType type = as_is ? own : arithmetic(call);
  const ScalarType sums = accumulator(type);
  Call a = call;
  a.sinks.reset();  // added after the rest is known to be right
  std::array<Tensor, 4> copies;
  a.d = a.dv = std::max(call.d, call.dv);  // SDPA takes one head size: the smaller one is padded with zeros
  a.query = readable(call.query, type, a.d, copies[0]);
  a.key = readable(call.key, type, a.d, copies[1]);
  a.value = readable(call.value, type, a.d, copies[2]);
  if (a.mask) a.mask = additive(*call.mask, type, copies[3]);
  // SDPA overlooks some NaN and Inf, and gives its output the query's strides even if these overlap.
  if (!finite(a.query) || !finite(a.key) || !finite(a.value)) return std::nullopt;
  if (!apart(a.query)) {
    copies[0] = aten("clone", "", copies[0], std::optional(torch::headeronly::MemoryFormat::Contiguous));
    a.query = view(a.query.op, a.query.name, copies[0]);
  }

  const std::vector<BatchDim> dims = batch_dims(a);
  const std::size_t outer = dims.size() - 2;
  const BatchDim batch = dims[outer], heads = dims[outer + 1];
  const auto operand = [&](std::size_t o, const TensorView& v, std::int64_t offset) {
    const std::int64_t rows = v.dim() < 2 ? 1 : v.size(-2), columns = v.dim() < 1 ? 1 : v.size(-1);
    const std::int64_t row = rows == 1 ? columns : v.stride(-2);
    const auto size = [&](const BatchDim& d) { return o == 3 && d.strides[o] == 0 ? 1 : d.size; };
    return strided(*v.tensor, std::array{size(batch), size(heads), rows, columns},
                   std::array{batch.strides[o], heads.strides[o], row, std::int64_t{1}}, offset);
  };
  const std::int64_t n = a.batches(), inner = batch.size * heads.size;
  Tensor output, lse;  // (n, Sq, Dv) and (n, Sq), contiguous
  if (outer > 0) output = empty(Shape{n, a.sq, a.dv}, type, a.query), lse = empty(Shape{n, a.sq}, sums, a.query);
  std::int64_t done = 0;
  for_each(dims, outer, [&](const PerOperand& offset) {
    const Tensor q = operand(0, a.query, offset[0]), k = operand(1, a.key, offset[1]), v = operand(2, a.value, offset[2]);
    std::optional<Tensor> mask;
    if (a.mask) mask = operand(3, *a.mask, offset[3]);
    AtenTensorHandle bias = mask ? mask->get() : nullptr, out = nullptr, sum = nullptr;
    double scale = a.scale;
    TORCH_ERROR_CODE_CHECK(aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(
        q.get(), k.get(), v.get(), 0, causal, mask ? &bias : nullptr, &scale, &out, &sum));
    const Tensor o(out), l(sum);  // (batch, heads, Sq, Dv) and (batch, heads, Sq), in the kernel's dim order
    if (outer == 0) {
      output = dense(o), lse = dense(l);
      return;
    }
    Tensor to = strided(output, std::array{batch.size, heads.size, a.sq, a.dv},
                        std::array{heads.size * a.sq * a.dv, a.sq * a.dv, a.dv, std::int64_t{1}}, done * a.sq * a.dv);
    torch::stable::copy_(to, o);
    to =
        strided(lse, std::array{batch.size, heads.size, a.sq}, std::array{heads.size * a.sq, a.sq, std::int64_t{1}}, done * a.sq);
    torch::stable::copy_(to, l);
    done += inner;
  });

  return result(call, a, output, lse, want_lse);
}

// ---- Else: ATen over blocks of query rows, in fp32 or wider ------------------------------------------------------------

/// (batch..., rows, cols) of `v` in `type`, flattened to (batches, rows, cols).
Tensor flattened(const Call& a, const TensorView& v, std::int64_t group, ScalarType type) {
  Tensor x = converted(*v.tensor, type);
  if (group != 1)
    x = aten("repeat_interleave", "self_int", x, group, std::optional<std::int64_t>(-3), std::optional<std::int64_t>());
  x = aten("expand", "", x, a.batch_and({v.size(-2), v.size(-1)}), false);
  return torch::stable::contiguous(torch::stable::reshape(x, std::array{a.batches(), v.size(-2), v.size(-1)}));
}

/// Bypasses the dispatcher, where autocast would round the operands.
Tensor bmm(const Tensor& x, const Tensor& y, ScalarType type, const TensorView& like) {
  const TensorView a = view(like.op, "a", x), b = view(like.op, "b", y);
  const Tensor out = empty(Shape{a.size(0), a.size(1), b.size(2)}, type, like);
  TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_bmm_out(out.get(), x.get(), y.get()));
  return out;
}

Result attention_in_blocks(const Call& a, bool want_lse) {
  Result r = empty_result(a, want_lse);
  const std::int64_t n = a.batches();
  const ScalarType type = arithmetic(a);
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor zero = scalar(0, type), minus_inf = scalar(-inf, type);
  const double scale = a.softcap == 0 ? a.scale : a.scale / a.softcap;
  Tensor query = aten("mul", "Tensor", flattened(a, a.query, 1, type), scalar(scale, type));
  Tensor key = flattened(a, a.key, a.key_group, type), value = flattened(a, a.value, a.value_group, type);
  std::optional<Tensor> lse, mask;
  if (r.lse) lse = torch::stable::view(*r.lse, std::array{n, a.sq});
  if (a.mask) mask = aten("expand", "", *a.mask->tensor, a.batch_and({a.sq, a.sk}), false);

  // Elements of one block of scores: near the size of the last-level cache, never Sq x Sk. With a window, rows have fewer.
  constexpr std::int64_t kScores = 1 << 22, kRows = 128;
  const std::int64_t width = std::clamp<std::int64_t>(a.last - a.first + kRows, 1, std::max<std::int64_t>(a.sk, 1));
  const std::int64_t block = std::clamp<std::int64_t>(kScores / std::max<std::int64_t>(n * width, 1), 1, kRows);
  for (std::int64_t row = 0; row < a.sq; row += block) {
    const std::int64_t rows = std::min(block, a.sq - row);
    // Keys that some row of the block sees.
    const std::int64_t begin = std::clamp<std::int64_t>(row + a.first, 0, a.sk);
    const std::int64_t end = std::clamp<std::int64_t>(row + rows - 1 + a.last, begin, a.sk), cols = end - begin;
    Tensor scores = bmm(torch::stable::narrow(query, 1, row, rows),
                        torch::stable::transpose(torch::stable::narrow(key, 1, begin, cols), 1, 2), type, a.query);
    if (a.softcap != 0) scores = aten("mul", "Tensor", aten("tanh", "", scores), scalar(a.softcap, type));
    const auto hide = [&](const char* triangle, std::int64_t diagonal) {
      const Tensor ones = torch::stable::full(std::array{rows, cols}, 1, ScalarType::Bool);
      scores = aten("masked_fill", "Tensor", scores, aten(triangle, "", ones, diagonal), minus_inf);
    };
    if (row + a.last < end) hide("triu", row + a.last - begin);
    if (row + rows - 1 + a.first > begin) hide("tril", row + a.first - 1 - begin);
    if (mask) {
      Tensor bias = torch::stable::narrow(*mask, -2, row, rows);
      bias = torch::stable::narrow(bias, -1, begin, cols);
      // A boolean mask is the additive mask 0 / -inf, as in SDPA: a NaN score stays NaN.
      bias = a.mask->dtype == ScalarType::Bool ? aten("where", "self", bias, zero, minus_inf) : torch::stable::to(bias, type);
      bias = torch::stable::reshape(bias, std::array{n, rows, cols});
      scores = torch::stable::subtract(scores, bias, -1);
    }
    const Tensor weights = aten("_safe_softmax", "", scores, std::int64_t{-1}, std::optional<ScalarType>());
    Tensor block_output = bmm(weights, torch::stable::narrow(value, 1, begin, cols), type, a.query);
    if (lse || a.sinks) {
      Tensor block_lse = aten("logsumexp", "", scores, Shape{-1}, false);
      if (a.sinks) block_output = aten("mul", "Tensor", block_output, add_sinks(a, block_lse, rows, type));
      if (lse) {
        Tensor target = torch::stable::narrow(*lse, 1, row, rows);
        torch::stable::copy_(target, block_lse);
      }
    }
    Tensor target = torch::stable::narrow(r.output, -2, row, rows);
    torch::stable::copy_(target, torch::stable::reshape(block_output, a.batch_and({rows, a.dv})));
  }
  return r;
}

}  // namespace

Result attention_cpu(const Call& a, bool want_lse) {
  if (a.batches() * a.sq == 0) return empty_result(a, want_lse);
  std::optional<Result> r = attention_by_sdpa(a, want_lse);
  return r ? *r : attention_in_blocks(a, want_lse);
}

}  // namespace xgemm::attention
