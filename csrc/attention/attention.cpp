// scaled_dot_product_attention without a Sq x Sk buffer: argument checks, the CPU path, and the CUDA path's problem -> plan ->
// launch.
#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "torch/aten.h"
#include "torch/register.h"
#ifdef XGEMM_WITH_CUDA
#include "attention/arguments.h"
#include "torch/cuda.h"
#endif

namespace xgemm {
namespace {

constexpr std::int64_t kMaxHeadSize = 256;
constexpr std::int64_t kMaxLength =
    std::numeric_limits<std::int32_t>::max() - 1024;  // positions fit 32 bits, a tile beyond them too

/// A checked call. `batch` is everything in front of the last two dims, broadcast, heads last.
struct Call {
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

Call check_arguments(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                     const std::optional<Tensor>& attn_mask, bool is_causal, std::optional<double> scale, bool enable_gqa,
                     const std::string& alignment) {
  Call a{.query = view(op, "query", query),
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

ScalarType accumulator(const Call& a) { return a.query.dtype == ScalarType::Double ? ScalarType::Double : ScalarType::Float; }

/// Uninitialised outputs: (batch..., Sq, Dv) and, if wanted, (batch..., Sq).
Result empty_result(const Call& a, bool want_lse) {
  Shape shape = a.batch;
  shape.push_back(a.sq);
  Result r{.output = Tensor(), .lse = {}};
  if (want_lse) r.lse = empty(shape, accumulator(a), a.query);
  shape.push_back(a.dv);
  r.output = empty(shape, a.query.dtype, a.query);
  return r;
}

/// One batch dim that every operand steps through evenly.
struct BatchDim {
  std::int64_t size;
  std::array<std::int64_t, 4> strides;  ///< of query, key, value and mask
};

/// Dims of size 1 left out, neighbours merged where every operand steps through both as through one. `heads_apart`: the last dim
/// stays as it is.
std::vector<BatchDim> merged(ShapeRef sizes, const std::array<Shape, 4>& strides, bool heads_apart) {
  std::vector<BatchDim> dims;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const bool heads = heads_apart && i + 1 == sizes.size();
    if (sizes[i] == 1 && !heads) continue;
    const BatchDim now{sizes[i], {strides[0][i], strides[1][i], strides[2][i], strides[3][i]}};
    bool merge = !dims.empty() && !heads;
    for (std::size_t o = 0; merge && o < now.strides.size(); ++o) merge = dims.back().strides[o] == now.strides[o] * now.size;
    if (merge)
      dims.back() = {dims.back().size * now.size, now.strides};
    else
      dims.push_back(now);
  }
  return dims;
}

/// Strides of query, key, value and mask over a.batch and their last two dims; over the heads as the operand stores them, which
/// may be grouped.
std::array<Shape, 4> strides_of(const Call& a) {
  Shape full = a.batch;
  full.insert(full.end(), {a.sq, a.sk});
  const auto of = [&](const TensorView& v) { return broadcast_strides(v.sizes, v.strides, full); };
  return {of(a.query), of(a.key), of(a.value), a.mask ? of(*a.mask) : Shape(full.size(), 0)};
}

/// Calls `f` with each operand's offset for every position in the first `count` of `dims`.
template <class F>
void for_each(const std::vector<BatchDim>& dims, std::size_t count, const F& f, std::array<std::int64_t, 4> offset = {},
              std::size_t dim = 0) {
  if (dim == count) return f(offset);
  for (std::int64_t i = 0; i < dims[dim].size; ++i) {
    for_each(dims, count, f, offset, dim + 1);
    for (std::size_t o = 0; o < offset.size(); ++o) offset[o] += dims[dim].strides[o];
  }
}

// ---- CPU: SDPA's kernel, where its result is what docs/attention.md promises -------------------------------------------------

/// What the CPU multiplies in, the half types aside that SDPA's kernel reads as they are: never fewer bits than the
/// accumulator's.
ScalarType arithmetic(const Call& a) {
  return accumulator(a) == ScalarType::Double || product_rounding() != Rounding::none ? ScalarType::Double : ScalarType::Float;
}

/// `v` in `type` with rows of `columns` adjacent elements, zeros at their ends, that do not overlap, which BLAS needs; `copy`
/// owns it where it is not `v` itself.
TensorView readable(const TensorView& v, ScalarType type, std::int64_t columns, Tensor& copy) {
  copy = v.dtype == type ? *v.tensor : torch::stable::to(*v.tensor, type);
  if (v.size(-1) != columns) {
    const std::array<std::int64_t, 2> more = {0, columns - v.size(-1)};
    double zero = 0;
    AtenTensorHandle padded = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_aten_pad(copy.get(), more.data(), 2, "constant", &zero, &padded));
    copy = Tensor(padded);
  }
  TensorView x = view(v.op, v.name, copy);
  const bool rows = x.size(-2) == 1 || (x.stride(-2) >= x.size(-1) && x.stride(-2) <= std::numeric_limits<std::int32_t>::max());
  if (rows && (x.size(-1) == 1 || x.stride(-1) == 1)) return x;
  copy = aten("clone", "", copy, std::optional(torch::headeronly::MemoryFormat::Contiguous));
  return view(v.op, v.name, copy);
}

/// The mask as SDPA's kernel reads it: additive, of `type` (fp32 beside a half type too), its last dim dense.
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

/// Rows of which SDPA's log-sum-exp does not say that its output is right: where no key took part it gives 0 for both, but also
/// for a row of NaN scores, which it can overlook; with Inf and NaN the exponentials decide.
template <class T, class Bits>
std::vector<std::int64_t> unsure_rows(const Tensor& lse, const Tensor& output, std::int64_t rows, std::int64_t dv) {
  const T* const l = static_cast<const T*>(lse.data_ptr());
  const Bits* const o = static_cast<const Bits*>(output.data_ptr());
  std::vector<std::int64_t> unsure;
  for (std::int64_t i = 0; i < rows; ++i)
    if (!std::isfinite(l[i]) || (l[i] == 0 && static_cast<Bits>(o[i * dv] << 1) == 0)) unsure.push_back(i);
  return unsure;
}

/// Whether each of `rows` is one that `mask` hides whole and SDPA left 0; then its log-sum-exp becomes -inf.
template <class T>
bool all_masked(const Call& a, const Tensor& lse, const std::vector<std::int64_t>& rows) {
  if (rows.empty()) return true;
  if (!a.mask) return false;
  const double inf = std::numeric_limits<double>::infinity();
  Shape shape = a.batch;
  shape.push_back(a.sq);
  const Tensor& mask = *a.mask->tensor;
  Tensor largest = a.mask->dim() == 0 ? mask : aten("amax", "", mask, Shape{-1}, false);
  largest = aten("eq", "Tensor", largest, scalar(-inf, a.mask->dtype));
  const Tensor hidden = torch::stable::contiguous(aten("expand", "", largest, shape, false));
  T* const l = static_cast<T*>(lse.data_ptr());
  for (const std::int64_t i : rows) {
    if (l[i] != 0 || !static_cast<const bool*>(hidden.data_ptr())[i]) return false;
    l[i] = static_cast<T>(-inf);
  }
  return true;
}

Tensor dense(const Tensor& t) {
  bool is_contiguous = false;
  TORCH_ERROR_CODE_CHECK(aoti_torch_is_contiguous(t.get(), &is_contiguous));
  return is_contiguous ? t : torch::stable::contiguous(t);
}

Shape contiguous_strides(ShapeRef shape) {
  Shape strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0; step *= std::max<std::int64_t>(shape[i], 1)) strides[i] = step;
  return strides;
}

std::optional<Result> attention_by_sdpa(const Call& call, bool want_lse) {
  if (call.d == 0 || call.dv == 0 || call.sk == 0 || call.key_group != call.value_group) return std::nullopt;
  if (call.causal && (call.shift != 0 || call.scale <= 0)) return std::nullopt;  // it scales what it has masked
  // Half types go in as they are where this CPU multiplies them: then the exponentials are good for the output, but not for a
  // log-sum-exp in fp32.
  const ScalarType own = call.query.dtype;
  const bool as_is = own == ScalarType::Double || (own != ScalarType::Float && !want_lse && multiplies(own));
  const ScalarType type = as_is ? own : arithmetic(call);
  const ScalarType sums = type == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
  Call a = call;
  std::array<Tensor, 4> copies;
  a.d = a.dv = std::max(call.d, call.dv);  // it takes one head size: the smaller one is filled with zeros
  a.query = readable(call.query, type, a.d, copies[0]);
  a.key = readable(call.key, type, a.d, copies[1]);
  a.value = readable(call.value, type, a.d, copies[2]);
  if (a.mask) a.mask = additive(*call.mask, type, copies[3]);

  // Query heads that share a key head are a dim of their own.
  Shape sizes = a.batch;
  std::array<Shape, 4> strides = strides_of(a);
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

  // The kernel takes two batch dims; there is seldom a third one.
  std::vector<BatchDim> dims = merged(sizes, strides, false);
  while (dims.size() < 2) dims.push_back({1, {}});
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
  for_each(dims, outer, [&](const std::array<std::int64_t, 4>& offset) {
    const Tensor q = operand(0, a.query, offset[0]), k = operand(1, a.key, offset[1]), v = operand(2, a.value, offset[2]);
    std::optional<Tensor> mask;
    if (a.mask) mask = operand(3, *a.mask, offset[3]);
    AtenTensorHandle bias = mask ? mask->get() : nullptr, out = nullptr, sum = nullptr;
    double scale = a.scale;
    TORCH_ERROR_CODE_CHECK(aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(
        q.get(), k.get(), v.get(), 0, a.causal, mask ? &bias : nullptr, &scale, &out, &sum));
    const Tensor o(out), l(sum);  // (batch, heads, Sq, Dv) and (batch, heads, Sq) in an order of the kernel's own
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

  const std::int64_t rows = n * a.sq;
  const bool right =
      type == ScalarType::Double  ? all_masked<double>(a, lse, unsure_rows<double, std::uint64_t>(lse, output, rows, a.dv))
      : type == ScalarType::Float ? all_masked<float>(a, lse, unsure_rows<float, std::uint32_t>(lse, output, rows, a.dv))
                                  : all_masked<float>(a, lse, unsure_rows<float, std::uint16_t>(lse, output, rows, a.dv));
  if (!right) return std::nullopt;
  if (a.dv != call.dv) output = torch::stable::contiguous(torch::stable::narrow(output, -1, 0, call.dv));
  if (type != own) output = torch::stable::to(output, own);
  Shape shape = a.batch;
  shape.push_back(a.sq);
  Result r{.output = Tensor(), .lse = {}};
  if (want_lse) {
    if (sums != accumulator(call)) lse = torch::stable::to(lse, accumulator(call));
    r.lse = strided(lse, shape, contiguous_strides(shape));
  }
  shape.push_back(call.dv);
  r.output = strided(output, shape, contiguous_strides(shape));
  return r;
}

// ---- CPU, else: ATen over blocks of query rows, in fp32 or wider ------------------------------------------------------------

/// (batch..., rows, cols) of `v` in `type`, flattened to (batches, rows, cols).
Tensor flattened(const Call& a, const TensorView& v, std::int64_t group, ScalarType type) {
  Tensor x = torch::stable::to(*v.tensor, type);
  if (group != 1)
    x = aten("repeat_interleave", "self_int", x, group, std::optional<std::int64_t>(-3), std::optional<std::int64_t>());
  Shape shape = a.batch;
  shape.insert(shape.end(), {v.size(-2), v.size(-1)});
  x = aten("expand", "", x, shape, false);
  return torch::stable::contiguous(torch::stable::reshape(x, std::array{a.batches(), v.size(-2), v.size(-1)}));
}

/// Not through the dispatcher, where autocast would round what is multiplied.
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
  Tensor query = aten("mul", "Tensor", flattened(a, a.query, 1, type), scalar(a.scale, type));
  Tensor key = flattened(a, a.key, a.key_group, type), value = flattened(a, a.value, a.value_group, type);
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
    Tensor scores = bmm(torch::stable::narrow(query, 1, row, rows),
                        torch::stable::transpose(torch::stable::narrow(key, 1, 0, cols), 1, 2), type, a.query);
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
    torch::stable::copy_(target, bmm(weights, torch::stable::narrow(value, 1, 0, cols), type, a.query));
  }
  return r;
}

Result attention_cpu(const Call& a, bool want_lse) {
  if (a.batches() * a.sq == 0) return empty_result(a, want_lse);
  std::optional<Result> r = attention_by_sdpa(a, want_lse);
  return r ? *r : attention_in_blocks(a, want_lse);
}

#ifdef XGEMM_WITH_CUDA
// ---- CUDA: problem -> plan -> launch ----------------------------------------------------------------------------------------

/// `v` as the kernels see it, but for the batch dims; `strides` end with those of the last two dims.
attention::Operand operand(const TensorView& v, ShapeRef strides) {
  return {.data = v.data, .row = strides[strides.size() - 2], .column = strides.back()};
}

/// Whether every row of `o` starts at a multiple of 16 bytes, with its columns adjacent and, for half types, whole vectors of
/// them.
bool vectorizable(const attention::Operand& o, int batch_dims, std::int64_t columns, std::int64_t item) {
  bool aligned = (o.column == 1 || columns <= 1) && reinterpret_cast<std::uintptr_t>(o.data) % 16 == 0;
  for (std::int64_t stride : {o.row, o.group}) aligned = aligned && stride * item % 16 == 0;
  for (int i = 0; i < batch_dims; ++i) aligned = aligned && o.batch[i] * item % 16 == 0;
  return aligned && (item > 2 || columns * item % 16 == 0);
}

Result attention_cuda(const Call& a, bool want_lse) {
  const CudaScope scope(a.query);
  Result r = empty_result(a, want_lse);
  if (a.batches() * a.sq == 0 || (a.dv == 0 && !want_lse)) return r;
  const std::int64_t item = a.query.dtype == ScalarType::Double ? 8 : a.query.dtype == ScalarType::Float ? 4 : 2;

  std::array<Shape, 4> strides = strides_of(a);
  attention::Arguments k;
  k.query = operand(a.query, strides[0]);
  k.key = operand(a.key, strides[1]);
  k.value = operand(a.value, strides[2]);
  k.dtype = to_dtype(a.query.dtype);
  if (a.mask) k.mask = operand(*a.mask, strides[3]), k.mask_dtype = to_dtype(a.mask->dtype), k.masked = true;
  k.sq = static_cast<int>(a.sq), k.sk = static_cast<int>(a.sk), k.d = static_cast<int>(a.d), k.dv = static_cast<int>(a.dv);
  k.scale = a.scale, k.causal = a.causal, k.shift = a.shift;

  // Query heads that share a key head become rows of one tile, which reads that head's keys and values once.
  Shape sizes = a.batch;
  if (a.key_group == a.value_group && a.key_group * a.sq <= kMaxLength) {
    k.group = static_cast<int>(a.key_group);
    if (k.group != 1) {
      const std::size_t heads = sizes.size() - 1;
      k.query.group = strides[0][heads], k.mask.group = strides[3][heads];
      sizes[heads] /= k.group;
      strides[0][heads] *= k.group, strides[3][heads] *= k.group;
    }
  } else {
    k.key_group = static_cast<std::uint32_t>(a.key_group), k.value_group = static_cast<std::uint32_t>(a.value_group);
  }
  // The heads stay apart as the last dim when key and value share them differently.
  const std::vector<BatchDim> dims = merged(sizes, strides, k.key_group != 1 || k.value_group != 1);
  const std::array<attention::Operand*, 4> operands = {&k.query, &k.key, &k.value, &k.mask};
  const std::size_t own = std::min<std::size_t>(dims.size(), attention::kMaxBatchDims), outer = dims.size() - own;
  k.batch_dims = static_cast<int>(own);
  std::int64_t batches = 1;
  for (std::size_t i = 0; i < own; ++i) {
    batches *= dims[outer + i].size;
    k.batch_sizes[i] = static_cast<std::uint32_t>(dims[outer + i].size);
    for (std::size_t o = 0; o < operands.size(); ++o) operands[o]->batch[i] = dims[outer + i].strides[o];
  }

  const attention::Plan plan = attention::make_plan({.fp64 = k.dtype == DType::f64,
                                                     .batches = batches,
                                                     .rows = k.group * a.sq,
                                                     .sk = a.sk,
                                                     .d = a.d,
                                                     .dv = a.dv,
                                                     .sm_count = scope.properties().sm_count});
  check(plan.blocks <= std::numeric_limits<std::int32_t>::max(), a.query.op, "expected fewer than 2^31 tiles of rows, got ",
        plan.blocks);
  const attention::Tile& tile = attention::kTiles[static_cast<std::size_t>(plan.tile)];
  k.batches = static_cast<std::uint32_t>(batches);
  k.row_tiles = static_cast<std::uint32_t>(plan.row_tiles);
  k.splits = plan.splits, k.parallel = plan.parallel;
  std::optional<Tensor> partials;
  if (plan.partials != 0) {
    const std::int64_t rows = plan.partials * k.total_rows(), bytes = tile.element_bytes();
    partials = workspace(static_cast<std::size_t>(rows * (tile.head_size + 2) * bytes), a.query);
    char* const base = static_cast<char*>(partials->data_ptr());
    k.partial_output = base;
    k.partial_max = base + rows * tile.head_size * bytes;
    k.partial_sum = base + rows * (tile.head_size + 1) * bytes;
  }
  // Dims beyond what the kernels count are loops here.
  const std::array<const void*, 4> bases = {k.query.data, k.key.data, k.value.data, k.mask.data};
  const std::int64_t rows = k.total_rows(), sum_item = item == 8 ? 8 : 4;
  std::int64_t done = 0;
  for_each(dims, outer, [&](const std::array<std::int64_t, 4>& offset) {
    for (std::size_t o = 0; o < operands.size(); ++o)
      if (bases[o]) {
        const auto bytes = o == 3 ? static_cast<std::int64_t>(size_of(k.mask_dtype)) : item;
        operands[o]->data = static_cast<const char*>(bases[o]) + offset[o] * bytes;
      }
    k.query.vector = vectorizable(k.query, k.batch_dims, a.d, item);
    k.key.vector = vectorizable(k.key, k.batch_dims, a.d, item);
    k.value.vector = vectorizable(k.value, k.batch_dims, a.dv, item);
    k.output = static_cast<char*>(r.output.data_ptr()) + done * a.dv * item;
    k.lse = r.lse ? static_cast<char*>(r.lse->data_ptr()) + done * sum_item : nullptr;
    attention::launch(plan, k, scope.stream());
    scope.check_launch();
    done += rows;
  });
  return r;
}
#endif

// ---- ops --------------------------------------------------------------------------------------------------------------------

Result run(const Call& a, bool want_lse) {
#ifdef XGEMM_WITH_CUDA
  if (a.query.cuda) return attention_cuda(a, want_lse);
#endif
  return attention_cpu(a, want_lse);
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
