// attention_varlen and attention_with_cache: argument checks and ops. The paths: sequences_cpu.cpp, sequences_cuda.cpp.
#include "attention/sequences.h"

#include <algorithm>

#include "torch/register.h"

namespace xgemm {

attention::Result attention::empty_result(const SequenceCall& c, bool want_lse) {
  Shape shape(c.query.sizes.begin(), c.query.sizes.end());
  shape.back() = c.dv;
  Result r{.output = empty(shape, c.query.dtype, c.query), .lse = {}};
  if (want_lse) {
    shape.resize(shape.size() - 2);
    shape.insert(shape.end() - 1, c.heads);
    r.lse = empty(shape, accumulator(c.query.dtype), c.query);
  }
  return r;
}

namespace {

using attention::kMaxHeadSize;
using attention::kMaxLength;
using attention::Result;
using attention::SequenceCall;
using OptionalTensor = std::optional<Tensor>;

/// The arguments that both ops have behind their tensors.
struct SequenceOptions {
  std::optional<double> scale;
  bool is_causal;
  const std::vector<std::int64_t>& window;
  double softcap;
  const OptionalTensor& sinks;
  const OptionalTensor& block_table;
  const std::string& precision;
};

/// Offsets, lengths or a table whose columns are adjacent: `copy` owns them where the caller's are not.
TensorView indices(const TensorView& query, const char* name, const Tensor& given, std::int64_t dims, Tensor& copy) {
  TensorView v = view(query.op, name, given);
  check_same_device(query, v);
  check_dtype(v, {ScalarType::Int});
  check(v.dim() == dims, query.op, "expected ", name, " with ", dims, dims == 1 ? " dim" : " dims", ", got shape ",
        to_string(v.sizes));
  if (v.size(-1) < 2 || v.stride(-1) == 1) return v;
  copy = torch::stable::contiguous(given);
  return view(query.op, name, copy);
}

void check_count(const TensorView& v, std::int64_t count, const char* what) {
  check(v.size(0) == count, v.op, "expected ", v.name, " of ", count, " ", what, ", got ", v.size(0));
}

/// A checked call, and the copies that it refers to: it stays where it is.
struct Checked {
  SequenceCall call{};
  std::array<Tensor, 4> copies;
};

/// Checks what both ops have in common. `layout`: of query, of key and value.
void check_common(Checked& checked, const char* op, const Tensor& query, const char* const (&names)[2], const Tensor& key,
                  const Tensor& value, const char* const (&layouts)[2], const SequenceOptions& o) {
  SequenceCall& c = checked.call;
  c.query = view(op, "query", query), c.key = view(op, names[0], key), c.value = view(op, names[1], value);
  const auto check_layout = [&](const TensorView& v, const char* layout) {
    const auto dims = 1 + std::count(layout, layout + std::char_traits<char>::length(layout), ',');
    check(v.dim() == dims, op, "expected ", v.name, " of shape ", layout, ", got shape ", to_string(v.sizes));
  };
  check_layout(c.query, layouts[0]);
  for (const TensorView* v : {&c.query, &c.key, &c.value}) {
    check_same_device(c.query, *v);
    check_dtype(*v, kFloating);
    check_same_dtype(c.query, *v);
    if (v != &c.query) check_layout(*v, layouts[1]);
  }
  c.heads = c.query.size(-2), c.key_heads = c.key.size(-2), c.d = c.query.size(-1), c.dv = c.value.size(-1);
  check(c.key.size(-1) == c.d, op, "expected query and ", names[0], " of one head size, got ", c.d, " and ", c.key.size(-1));
  check(c.d <= kMaxHeadSize && c.dv <= kMaxHeadSize, op, "expected head sizes up to ", kMaxHeadSize, ", got query ", c.d, " and ",
        names[1], " ", c.dv);
  const ShapeRef rows = c.key.sizes.first(c.key.sizes.size() - 1), others = c.value.sizes.first(c.value.sizes.size() - 1);
  check(std::equal(rows.begin(), rows.end(), others.begin()), op, "expected ", names[0], " and ", names[1],
        " of one shape but for the head size, got shapes ", to_string(c.key.sizes), " and ", to_string(c.value.sizes));
  check(c.key_heads == c.heads || (c.key_heads > 0 && c.heads % c.key_heads == 0), op,
        "expected the number of query heads to be a multiple of ", names[0], " heads, got ", c.heads, " and ", c.key_heads);
  check(std::max(c.query.size(0), c.key.size(0)) <= kMaxLength, op, "expected lengths up to ", kMaxLength, ", got query ",
        c.query.size(0), " and ", names[0], " ", c.key.size(0));

  attention::check_window(op, o.window);
  c.left = o.window[0], c.right = o.is_causal ? 0 : o.window[1];
  c.scale = attention::checked_scale(c.query, o.scale, o.softcap), c.softcap = o.softcap;
  parse_precision(op, o.precision);  // a check alone: fp32 takes CUDA cores here, whatever it is
  if (o.sinks) {
    c.sinks = attention::checked_sinks(c.query, *o.sinks);
    check(c.sinks->dim() == 1 && c.sinks->size(0) == c.heads, op, "expected sinks of shape ", to_string(Shape{c.heads}),
          ", got shape ", to_string(c.sinks->sizes));
  }
  if (o.block_table) {
    c.table = indices(c.query, "block_table", *o.block_table, 2, checked.copies[0]);
    check(c.key.size(1) > 0, op, "expected pages of at least one row, got ", names[0], " of shape ", to_string(c.key.sizes));
  }
}

/// Rows that a sequence has room for in the cache.
std::int64_t capacity(const SequenceCall& c) {
  const std::int64_t rows = c.table ? c.table->size(1) * c.key.size(1) : c.key.size(1);
  check(rows <= kMaxLength, c.query.op, "expected caches of up to ", kMaxLength, " rows a sequence, got ", rows);
  return rows;
}

Result run(const SequenceCall& call, bool want_lse) {
#ifdef XGEMM_WITH_CUDA
  if (call.query.cuda) return attention::sequences_cuda(call, want_lse);
#endif
  return attention::sequences_cpu(call, want_lse);
}

template <bool kLse>
attention::Returned<kLse> attention_varlen_op(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& cu_seq_q,
                                              const OptionalTensor& cu_seq_k, std::int64_t max_q, std::int64_t max_k,
                                              std::optional<double> scale, bool is_causal,
                                              const std::vector<std::int64_t>& window, double softcap,
                                              const OptionalTensor& sinks, const OptionalTensor& seqused_k,
                                              const OptionalTensor& block_table, const Text& precision) {
  const char* const op = kLse ? "attention_varlen_lse" : "attention_varlen";
  Checked checked;
  SequenceCall& c = checked.call;
  const char* const pages = "(pages, page size, heads, head size)";
  const char* const packed = "(tokens, heads, head size)";
  check_common(checked, op, query, {"key", "value"}, key, value, {packed, block_table ? pages : packed},
               {scale, is_causal, window, softcap, sinks, block_table, precision});
  c.query_offsets = indices(c.query, "cu_seq_q", cu_seq_q, 1, checked.copies[1]);
  check(c.query_offsets->size(0) > 0, op, "expected cu_seq_q of sequences + 1 elements, got none");
  c.sequences = c.query_offsets->size(0) - 1;
  if (seqused_k) {
    c.key_lengths = indices(c.query, "seqused_k", *seqused_k, 1, checked.copies[2]);
    check_count(*c.key_lengths, c.sequences, "elements, one for each sequence of cu_seq_q");
  }
  if (c.table) {
    check(c.key_lengths.has_value(), op, "expected seqused_k with block_table, got None");
    check_count(*c.table, c.sequences, "rows, one for each sequence of cu_seq_q");
  } else {
    check(cu_seq_k.has_value(), op, "expected cu_seq_k unless there is a block_table, got None");
    c.key_offsets = indices(c.query, "cu_seq_k", *cu_seq_k, 1, checked.copies[3]);
    check_count(*c.key_offsets, c.sequences + 1, "elements, as cu_seq_q");
  }
  check(std::min(max_q, max_k) >= 0, op, "expected max_q and max_k from 0 on, got ", max_q, " and ", max_k);
  c.max_q = std::min(max_q, c.query.size(0));
  c.max_k = std::min(max_k, c.table ? capacity(c) : c.key.size(0));
  return attention::returned<kLse>(run(c, kLse));
}

template <bool kLse>
attention::Returned<kLse> attention_with_cache_op(const Tensor& query, const Tensor& key_cache, const Tensor& value_cache,
                                                  const Tensor& cache_seqlens, const OptionalTensor& key,
                                                  const OptionalTensor& value, const OptionalTensor& block_table,
                                                  std::optional<double> scale, bool is_causal,
                                                  const std::vector<std::int64_t>& window, double softcap,
                                                  const OptionalTensor& sinks, const Text& precision) {
  const char* const op = kLse ? "attention_with_cache_lse" : "attention_with_cache";
  Checked checked;
  SequenceCall& c = checked.call;
  const char* const cache = block_table ? "(pages, page size, heads, head size)" : "(sequences, length, heads, head size)";
  check_common(checked, op, query, {"key_cache", "value_cache"}, key_cache, value_cache,
               {"(sequences, length, heads, head size)", cache},
               {scale, is_causal, window, softcap, sinks, block_table, precision});
  c.sequences = c.query.size(0), c.max_q = c.query.size(1);
  check(c.max_q <= kMaxLength, op, "expected lengths up to ", kMaxLength, ", got query ", c.max_q);
  check_count(c.table ? *c.table : c.key, c.sequences, c.table ? "rows, one for each of query" : "sequences, as query");
  c.key_lengths = indices(c.query, "cache_seqlens", cache_seqlens, 1, checked.copies[1]);
  check_count(*c.key_lengths, c.sequences, "elements, one for each sequence of query");
  c.max_k = capacity(c);
  check(key.has_value() == value.has_value(), op, "expected key and value, or neither, got ", key ? "key" : "value", " alone");
  if (key) {
    c.new_key = view(op, "key", *key), c.new_value = view(op, "value", *value);
    const auto check_new = [&](const TensorView& v, const TensorView& into) {
      check_same_device(c.query, v);
      check_same_dtype(c.query, v);
      const Shape shape{c.sequences, c.new_key->dim() == 4 ? c.new_key->size(1) : 1, c.key_heads, into.size(-1)};
      check(std::equal(shape.begin(), shape.end(), v.sizes.begin(), v.sizes.end()), op, "expected ", v.name,
            " of shape (sequences, new, heads, head size), here ", to_string(shape), ", got shape ", to_string(v.sizes));
      for (std::int64_t i = 0; i < into.dim(); ++i)
        check(into.size(i) < 2 || into.stride(i) != 0, op, "expected ", into.name,
              " whose rows do not share memory, to write to, got stride 0");
    };
    check_new(*c.new_key, c.key), check_new(*c.new_value, c.value);
    check(c.new_key->size(1) <= c.max_k, op, "expected at most as many new keys as the cache has room for, ", c.max_k, ", got ",
          c.new_key->size(1));
  }
  return attention::returned<kLse>(run(c, kLse));
}

XGEMM_REGISTER_FORWARD_ONLY(xgemm, attention_varlen, attention_varlen_op<false>);
XGEMM_REGISTER_FORWARD_ONLY(xgemm, attention_varlen_lse, attention_varlen_op<true>);
XGEMM_REGISTER_FORWARD_ONLY(xgemm, attention_with_cache, attention_with_cache_op<false>);
XGEMM_REGISTER_FORWARD_ONLY(xgemm, attention_with_cache_lse, attention_with_cache_op<true>);

}  // namespace
}  // namespace xgemm
