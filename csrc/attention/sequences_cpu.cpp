// Sequences of different lengths on the CPU: attention's own CPU path for each of them, on its rows, or on a copy of its pages.
// Here lengths and tables are read, so that one out of range is an error.
#include <limits>

#include "attention/sequences.h"
#include "torch/aten.h"

namespace xgemm::attention {
namespace {

/// Where a sequence lies.
struct Span {
  std::int64_t query, queries;  ///< its first row and their number
  std::int64_t key, keys;       ///< the same of packed keys; of a cache all of its keys, the new ones included
};

const int* numbers(const TensorView& v) { return static_cast<const int*>(v.data); }

/// [offsets[i], offsets[i + 1]), after checks of both.
std::pair<std::int64_t, std::int64_t> range(const TensorView& offsets, std::int64_t i, std::int64_t rows) {
  const int from = numbers(offsets)[i], to = numbers(offsets)[i + 1];
  check(0 <= from && from <= to && to <= rows, offsets.op, "expected ", offsets.name, " that does not decrease, in [0, ", rows,
        "], got ", from, " and ", to, " of sequence ", i);
  return {from, to - from};
}

Span span_of(const SequenceCall& c, std::int64_t i) {
  const char* const op = c.query.op;
  Span s{i, c.max_q, i, 0};
  if (c.query_offsets) std::tie(s.query, s.queries) = range(*c.query_offsets, i, c.query.size(0));
  check(s.queries <= c.max_q, op, "expected sequences of up to max_q = ", c.max_q, " queries, got ", s.queries, " of sequence ",
        i);
  std::int64_t most = c.max_k;
  if (c.key_offsets) std::tie(s.key, s.keys) = range(*c.key_offsets, i, c.key.size(0)), most = s.keys;
  if (c.key_lengths) {
    const std::int64_t appended = c.new_key ? c.new_key->size(1) : 0, before = numbers(*c.key_lengths)[i];
    check(0 <= before && before + appended <= most, op, "expected ", c.key_lengths->name, " in [0, ", most - appended, "], got ",
          before, " of sequence ", i);
    s.keys = before + appended;
  }
  check(s.keys <= c.max_k, op, "expected sequences of up to max_k = ", c.max_k, " keys, got ", s.keys, " of sequence ", i);
  if (c.table) {
    const std::int64_t page = c.key.size(1), pages = c.key.size(0);
    const int* const row = numbers(*c.table) + i * c.table->stride(0);
    for (std::int64_t j = 0; j * page < s.keys; ++j)
      check(0 <= row[j] && row[j] < pages, op, "expected block_table in [0, ", pages, "), got ", row[j], " of sequence ", i);
  }
  return s;
}

/// The page of row `row` of sequence `i`, and the row in it; without a table the sequence's cache is its one page.
std::pair<std::int64_t, std::int64_t> page_of(const SequenceCall& c, std::int64_t i, std::int64_t row) {
  const std::int64_t page = c.key.size(1);
  return c.table ? std::pair<std::int64_t, std::int64_t>{numbers(*c.table)[i * c.table->stride(0) + row / page], row % page}
                 : std::pair{i, row};
}

/// Writes sequence `i`'s new rows behind the others, page by page.
void append(const SequenceCall& c, std::int64_t i, std::int64_t keys, const TensorView& from, const TensorView& cache) {
  const std::int64_t count = from.size(1), heads = from.size(2), d = from.size(3);
  for (std::int64_t done = 0, rows; done < count; done += rows) {
    const auto [page, row] = page_of(c, i, keys - count + done);
    rows = std::min(count - done, cache.size(1) - row);
    const std::array sizes{rows, heads, d};
    Tensor to = strided(*cache.tensor, sizes, cache.strides.last(3), page * cache.stride(0) + row * cache.stride(1));
    torch::stable::copy_(to, strided(*from.tensor, sizes, from.strides.last(3), i * from.stride(0) + done * from.stride(1)));
  }
}

/// (heads, rows, columns) of rows that lie at one distance.
Tensor rows_of(const TensorView& v, std::int64_t offset, std::int64_t rows) {
  return strided(*v.tensor, std::array{v.size(-2), rows, v.size(-1)}, std::array{v.stride(-2), v.stride(-3), v.stride(-1)},
                 offset);
}

/// A sequence's keys or values, (heads, keys, columns): where they lie, unless they have several pages.
Tensor keys_of(const SequenceCall& c, std::int64_t i, const Span& s, const TensorView& v) {
  if (c.key_offsets) return rows_of(v, s.key * v.stride(0), s.keys);
  if (s.keys <= v.size(1)) return rows_of(v, s.keys > 0 ? page_of(c, i, 0).first * v.stride(0) : 0, s.keys);
  const std::int64_t pages = (s.keys + v.size(1) - 1) / v.size(1);
  const Tensor row = strided(*c.table->tensor, {&pages, 1}, std::array{std::int64_t{1}}, i * c.table->stride(0));
  const Tensor copy = aten("index_select", "", *v.tensor, std::int64_t{0}, row);
  return rows_of(view(v.op, v.name, copy), 0, s.keys);
}

}  // namespace

Result sequences_cpu(const SequenceCall& c, bool want_lse) {
  std::vector<Span> spans;
  std::int64_t rows = 0;  // of all sequences
  for (std::int64_t i = 0; i < c.sequences; ++i) spans.push_back(span_of(c, i)), rows += spans.back().queries;

  const bool packed = c.query_offsets.has_value();
  Result all = empty_result(c, want_lse);
  const std::int64_t total = packed ? c.query.size(0) : c.sequences * c.max_q;
  if (rows < total) {  // those of no sequence
    torch::stable::fill_(all.output, 0);
    if (all.lse) torch::stable::fill_(*all.lse, -std::numeric_limits<double>::infinity());
  }

  static const std::string kAlignment = "bottom_right", kPrecision = "highest";
  const std::vector<std::int64_t> window = {c.left, c.right};
  const std::optional<Tensor> sinks = c.sinks ? std::optional(*c.sinks->tensor) : std::nullopt;
  for (std::int64_t i = 0; i < c.sequences; ++i) {
    const Span& s = spans[static_cast<std::size_t>(i)];
    if (c.new_key) append(c, i, s.keys, *c.new_key, c.key), append(c, i, s.keys, *c.new_value, c.value);
    if (s.queries == 0) continue;
    const Tensor query = rows_of(c.query, s.query * c.query.stride(0), s.queries);
    const Tensor key = keys_of(c, i, s, c.key), value = keys_of(c, i, s, c.value);
    const Result one =
        attention_cpu(check_arguments(c.query.op, query, key, value,
                                      {std::nullopt, false, c.scale, true, kAlignment, window, c.softcap, sinks, kPrecision}),
                      want_lse);
    const std::int64_t first = packed ? s.query : i * c.max_q;  // row of the output
    Tensor to = strided(all.output, std::array{c.heads, s.queries, c.dv}, std::array{c.dv, c.heads * c.dv, std::int64_t{1}},
                        first * c.heads * c.dv);
    torch::stable::copy_(to, one.output);
    if (!all.lse) continue;
    Tensor sums = strided(*all.lse, std::array{c.heads, s.queries}, std::array{packed ? total : c.max_q, std::int64_t{1}},
                          packed ? first : first * c.heads);
    torch::stable::copy_(sums, *one.lse);
  }
  return all;
}

}  // namespace xgemm::attention
