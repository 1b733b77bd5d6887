// Offsets of the rows and the batches of an attention call.
#pragma once
#include "attention/arguments.h"

namespace xgemm::attention {

/// Position and offsets of packed query row `row`.
struct Row {
  int position;
  std::int64_t query, mask, out;  ///< offsets in elements of query and mask; index among all output rows
  __device__ __forceinline__ Row(const Arguments& a, std::uint32_t batch, int row) {
    const int head = a.group == 1 ? 0 : row % a.group;
    position = a.group == 1 ? row : row / a.group;
    query = position * a.query.row + head * a.query.group;
    mask = position * a.mask.row + head * a.mask.group;
    out = (static_cast<std::int64_t>(batch) * a.group + head) * a.sq + position;
  }
};

/// Adds batch `batch`'s offset, in elements, to each operand's.
__device__ __forceinline__ void add_batch(const Arguments& a, std::uint32_t batch, std::int64_t& query, std::int64_t& key,
                                          std::int64_t& value, std::int64_t& mask) {
  std::uint32_t rest = batch;
  for (int i = a.batch_dims - 1; i >= 0; --i) {
    const std::uint32_t index = rest % a.batch_sizes[i];
    rest /= a.batch_sizes[i];
    const bool heads = i == a.batch_dims - 1;
    query += index * a.query.batch[i];
    mask += index * a.mask.batch[i];
    key += (heads ? index / a.key_group : index) * a.key.batch[i];
    value += (heads ? index / a.value_group : index) * a.value.batch[i];
  }
}

}  // namespace xgemm::attention
