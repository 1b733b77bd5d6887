// Attention of sequences of different lengths: a checked call, and where its sequences lie on the device.
#pragma once
#include <cstdint>
#include <optional>

#include "attention/call.h"

namespace xgemm::attention {

/// A checked call. Query i of a sequence of n queries and m keys has its diagonal at key i + m - n.
struct SequenceCall {
  TensorView query;                              ///< packed (rows, heads, D), or (sequences, max_q, heads, D)
  TensorView key, value;                         ///< packed (rows, key heads, D), or pages (pages, page rows, key heads, D)
  std::optional<TensorView> new_key, new_value;  ///< (sequences, appended, key heads, D)
  std::optional<TensorView> query_offsets, key_offsets, key_lengths, table;  ///< int32, columns adjacent
  std::optional<TensorView> sinks;                                           ///< (heads)
  std::int64_t sequences, max_q, max_k;                                      ///< no sequence has more queries or keys
  std::int64_t heads, key_heads, d, dv;
  std::int64_t left, right;  ///< the window around the diagonal; -1: no limit. is_causal has made `right` 0
  double scale, softcap;
};

/// Uninitialised, or computed: output as the query with D -> Dv, contiguous; log-sum-exp (heads, rows), or (sequences, heads,
/// max_q) of a query that is not packed, in fp32 (fp64 for fp64), -inf for a row that sees no key; empty unless asked for.
Result empty_result(const SequenceCall& call, bool want_lse);
Result sequences_cpu(const SequenceCall& call, bool want_lse);
Result sequences_cuda(const SequenceCall& call, bool want_lse);

}  // namespace xgemm::attention
