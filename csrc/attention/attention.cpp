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

// ---- CPU: ATen over blocks of query rows, in fp32 or wider ------------------------------------------------------------------

/// (batch..., rows, cols) of `v` in the accumulator type, flattened to (batches, rows, cols).
Tensor flattened(const Call& a, const TensorView& v, std::int64_t group) {
  Tensor x = torch::stable::to(*v.tensor, accumulator(a));
  if (group != 1)
    x = aten("repeat_interleave", "self_int", x, group, std::optional<std::int64_t>(-3), std::optional<std::int64_t>());
  Shape shape = a.batch;
  shape.insert(shape.end(), {v.size(-2), v.size(-1)});
  x = aten("expand", "", x, shape, false);
  return torch::stable::contiguous(torch::stable::reshape(x, std::array{a.batches(), v.size(-2), v.size(-1)}));
}

Result attention_cpu(const Call& a, bool want_lse) {
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

/// Fills the batch dims: those of size 1 left out, neighbours merged where every operand steps through both as through one. The
/// heads stay apart as the last dim when key and value share them differently.
void set_batch(const Call& a, ShapeRef sizes, const std::array<Shape, 4>& strides, attention::Arguments& k) {
  const std::array<attention::Operand*, 4> operands = {&k.query, &k.key, &k.value, &k.mask};
  const bool heads_apart = k.key_group != 1 || k.value_group != 1;
  int n = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const bool heads = heads_apart && i + 1 == sizes.size();
    if (sizes[i] == 1 && !heads) continue;
    bool merge = n > 0 && !heads;
    for (std::size_t o = 0; merge && o < operands.size(); ++o) merge = operands[o]->batch[n - 1] == strides[o][i] * sizes[i];
    if (!merge) {
      check(n < attention::kMaxBatchDims, a.query.op, "expected batch dims that merge into at most ", attention::kMaxBatchDims,
            ", got ", to_string(sizes));
      k.batch_sizes[n++] = 1;
    }
    k.batch_sizes[n - 1] *= static_cast<std::uint32_t>(sizes[i]);
    for (std::size_t o = 0; o < operands.size(); ++o) operands[o]->batch[n - 1] = strides[o][i];
  }
  k.batch_dims = n;
}

Result attention_cuda(const Call& a, bool want_lse) {
  const CudaScope scope(a.query);
  Result r = empty_result(a, want_lse);
  if (a.batches() * a.sq == 0 || (a.dv == 0 && !want_lse)) return r;
  const std::int64_t item = a.query.dtype == ScalarType::Double ? 8 : a.query.dtype == ScalarType::Float ? 4 : 2;

  // Strides over a.batch and the last two dims; over the heads as the operand stores them, which may be grouped.
  Shape full = a.batch;
  full.insert(full.end(), {1, 1});
  const auto strides_of = [&](const TensorView& v) { return broadcast_strides(v.sizes, v.strides, full); };
  std::array<Shape, 4> strides = {strides_of(a.query), strides_of(a.key), strides_of(a.value), Shape(full.size(), 0)};
  if (a.mask) {
    Shape scores = a.batch;
    scores.insert(scores.end(), {a.sq, a.sk});
    strides[3] = broadcast_strides(a.mask->sizes, a.mask->strides, scores);
  }

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
  set_batch(a, sizes, strides, k);
  k.query.vector = vectorizable(k.query, k.batch_dims, a.d, item);
  k.key.vector = vectorizable(k.key, k.batch_dims, a.d, item);
  k.value.vector = vectorizable(k.value, k.batch_dims, a.dv, item);

  const attention::Plan plan = attention::make_plan({.fp64 = k.dtype == DType::f64,
                                                     .batches = a.batches() / k.group,
                                                     .rows = k.group * a.sq,
                                                     .sk = a.sk,
                                                     .d = a.d,
                                                     .dv = a.dv,
                                                     .sm_count = scope.properties().sm_count});
  check(plan.blocks <= std::numeric_limits<std::int32_t>::max(), a.query.op, "expected fewer than 2^31 tiles of rows, got ",
        plan.blocks);
  const attention::Tile& tile = attention::kTiles[static_cast<std::size_t>(plan.tile)];
  k.batches = static_cast<std::uint32_t>(a.batches() / k.group);
  k.row_tiles = static_cast<std::uint32_t>(plan.row_tiles);
  k.splits = plan.splits, k.parallel = plan.parallel;
  k.output = r.output.data_ptr();
  k.lse = r.lse ? r.lse->data_ptr() : nullptr;
  std::optional<Tensor> partials;
  if (plan.partials != 0) {
    const std::int64_t rows = plan.partials * k.total_rows(), bytes = tile.element_bytes();
    partials = workspace(static_cast<std::size_t>(rows * (tile.head_size + 2) * bytes), a.query);
    char* const base = static_cast<char*>(partials->data_ptr());
    k.partial_output = base;
    k.partial_max = base + rows * tile.head_size * bytes;
    k.partial_sum = base + rows * (tile.head_size + 1) * bytes;
  }
  attention::launch(plan, k, scope.stream());
  scope.check_launch();
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
