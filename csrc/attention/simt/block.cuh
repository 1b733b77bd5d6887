// What a block of simt/tile.cuh works on: its query rows, the keys that they see, and where its operands begin.
#pragma once
#include "attention/simt/rows.cuh"
#include "attention/simt/softmax.cuh"
#include "attention/tiles/sequences.cuh"

namespace xgemm::attention {

/// An operand from the block's batch on, strides in elements.
struct Source {
  const char* data;
  std::int64_t row, column;
  bool vector;
};
enum SourceIndex { kQuery, kKey, kValue };

/// Of a block, in shared memory: the main loop needs the registers.
struct Block {
  std::uint32_t batch;
  int split, sequence;
  int first, count;            ///< packed query rows; no count: the block has nothing to do
  int first_key, end_key;      ///< the block's keys, from a multiple of the tile's on
  int inner_begin, inner_end;  ///< of the keys in between every row sees every one
  SequenceBounds bounds;       ///< of positions that the packed rows count
  std::int64_t mask;
  Source sources[3];
};

/// Called by one thread, for tiles of so many rows and keys.
__device__ __forceinline__ void describe_block(Block& b, const SimtArguments& a, int tile_rows, int tile_keys) {
  std::uint32_t rest = blockIdx.x;
  std::uint32_t row_tile = rest % a.row_tiles;
  if (a.last < a.sk) row_tile = a.row_tiles - 1 - row_tile;  // causal blocks with the most keys start first
  rest /= a.row_tiles;
  b.batch = rest % a.batches, b.split = static_cast<int>(rest / a.batches), b.sequence = 0;
  const auto least = -std::int64_t{a.sq}, most = std::int64_t{a.sk};
  b.bounds = {a.sq, a.sk, static_cast<int>(max(least, min(a.first, most))), static_cast<int>(max(least, min(a.last, most)))};
  int row = 0, key_row = 0;
  const Sequences& s = a.sequences;
  if (s.count > 0) {  // packed rows are numbered, and see keys, as those of one batch
    const std::uint32_t heads = a.batch_sizes[1];
    b.batch = s.query_offsets != nullptr ? rest % heads : rest, b.split = 0, b.sequence = static_cast<int>(rest / heads);
    const SequenceItem x = describe_sequence(s, b.sequence);
    b.bounds = bounds_of(s, x);
    b.bounds.first -= x.query_row, b.bounds.last -= x.query_row;
    row = x.query_row, key_row = x.key_row, b.bounds.sq = x.query_row + x.sq;
  }
  b.first = row * a.group + static_cast<int>(row_tile) * tile_rows;
  b.count = min(tile_rows, b.bounds.sq * a.group - b.first);
  if (b.count <= 0) return;

  const int first = b.first / a.group, last = (b.first + b.count - 1) / a.group;  // positions
  const int begin = keys_begin(b.bounds, first), end = keys_end(b.bounds, last);  // no row of the tile sees others
  b.inner_begin = keys_begin(b.bounds, last), b.inner_end = keys_end(b.bounds, first);
  const int split_begin = (b.split + a.first_split) * kSplitKeys;
  b.first_key = max(begin / tile_keys * tile_keys, a.parallel ? split_begin : 0);
  b.end_key = a.parallel ? min(split_begin + kSplitKeys, end) : end;
  if (a.parallel && b.first_key >= b.end_key) b.count = 0;  // the merge does not read this split

  std::int64_t at[3] = {};
  b.mask = 0;
  add_batch(a, b.batch, at[kQuery], at[kKey], at[kValue], b.mask);
  const Operand* const operands[] = {&a.query, &a.key, &a.value};
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const Operand& x = *operands[i];
    if (i != kQuery) {
      at[i] += key_row * x.row;
      if (s.key_offsets == nullptr && s.table == nullptr) at[i] += b.sequence * a.page_steps[i - kKey];
    }
    b.sources[i] = {static_cast<const char*>(x.data) + at[i] * static_cast<std::int64_t>(size_of(a.dtype)), x.row, x.column,
                    x.vector};
  }
}

/// Distance of row `index` of a source's rows [0, end), in elements; -1: there is no such row.
__device__ __forceinline__ std::int64_t locate(const Block& b, const SimtArguments& a, SourceIndex of, int index, int end) {
  const Source& x = b.sources[of];
  if (index >= end) return -1;
  if (of == kQuery && a.group != 1) return index / a.group * x.row + index % a.group * a.query.group;
  const Sequences& s = a.sequences;
  if (of == kQuery || s.table == nullptr) return index * x.row;
  const int of_sequence = s.page_rows.divide(index), page = __ldg(s.table + b.sequence * s.table_step + of_sequence);
  if (static_cast<unsigned>(page) >= static_cast<unsigned>(s.pages)) return -1;
  return page * a.page_steps[of - kKey] + (index - of_sequence * static_cast<int>(s.page_rows.divisor)) * x.row;
}

}  // namespace xgemm::attention
