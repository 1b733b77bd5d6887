// Which tile of rows of which sequence an item is, and which keys its rows see: RowTile for Masking::sequences.
#pragma once
#include <type_traits>

#include "attention/tiles/scheduler.cuh"
#include "attention/tiles/sequence_tiles.h"

namespace xgemm::attention {

/// Row `i` of an array of offsets, in [0, rows].
__device__ __forceinline__ int sequence_offset(const int* offsets, int i, int rows) {
  return max(0, min(__ldg(offsets + i), rows));
}

/// Sequence i from its first row on, not split.
__device__ __forceinline__ SequenceItem describe_sequence(const Sequences& s, int i) {
  SequenceItem item{.sequence = i, .splits = 1, .sq = s.max_q, .sk = s.key_rows};
  if (s.query_offsets != nullptr) {
    item.query_row = sequence_offset(s.query_offsets, i, s.rows);
    item.sq = max(0, min(sequence_offset(s.query_offsets, i + 1, s.rows) - item.query_row, s.max_q));
  }
  if (s.key_offsets != nullptr) {
    item.key_row = sequence_offset(s.key_offsets, i, s.key_rows);
    item.sk = max(0, sequence_offset(s.key_offsets, i + 1, s.key_rows) - item.key_row);
  }
  if (s.key_lengths != nullptr) item.sk = max(0, min(max(0, __ldg(s.key_lengths + i)), item.sk - s.appended) + s.appended);
  item.sk = min(item.sk, s.max_k);
  return item;
}

/// A sequence's limits. 64 bits: a window may have any width.
__device__ __forceinline__ SequenceBounds bounds_of(const Sequences& s, const SequenceItem& item) {
  const std::int64_t diagonal = std::int64_t{item.sk} - item.sq;
  const auto first = s.left < 0 ? -item.sq : max(diagonal - s.left, -std::int64_t{item.sq});
  const auto last = s.right < 0 ? item.sk : min(diagonal + s.right + 1, std::int64_t{item.sk});
  return {item.sq, item.sk, static_cast<int>(min(first, std::int64_t{item.sk})),
          static_cast<int>(max(last, -std::int64_t{item.sq}))};
}

/// Tiles of keys that the rows of a tile see.
template <class Arguments>
__device__ __forceinline__ int visited_tiles(const Arguments& g, const SequenceItem& item) {
  const SequenceBounds x = bounds_of(g.sequences, item);
  const int keys = g.schedule.tile_keys, begin = keys_begin(x, position_of(g, x, item.row)) / keys,
            end = (keys_end(x, position_of(g, x, item.row + g.tile_rows - 1)) + keys - 1) / keys;
  return max(end - begin, 0);
}

/// Listed items that exist. CTAs that take items from a counter see no others.
template <class Base>
__device__ __forceinline__ int item_count(const WithSequences<Base>& g) {
  return __ldg(&g.schedule.list[g.schedule.entries].sequence) * static_cast<int>(g.schedule.heads.divisor);
}

struct SequenceTile : RowTile, SequenceBounds {
  int sequence, item, split_count, query_row, key_row;

  template <class Arguments>
  __device__ __forceinline__ SequenceTile(const Arguments& g, int item_index) : item(item_index) {
    const SequenceSchedule& order = g.schedule;
    const int entry = order.heads.divide(item), tile_head = item - entry * static_cast<int>(order.heads.divisor);
    SequenceItem x;
    if (order.list != nullptr) {
      const int4* const from = reinterpret_cast<const int4*>(order.list + entry);
      const int4 a = __ldg(from), b = __ldg(from + 1);
      x = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    } else {
      const int i = order.splits.divide(entry);
      x = describe_sequence(g.sequences, i);
      x.split = entry - i * static_cast<int>(order.splits.divisor);
      if (order.least_tiles > 0) {
        const int tiles = visited_tiles(g, x), most = static_cast<int>(order.splits.divisor);
        const int split = max(order.least_tiles, order.splits.divide(tiles + most - 1));
        x.splits = max(1, (tiles + split - 1) / split);
      }
      if (x.split >= x.splits || x.sq == 0) x.splits = 0;
    }
    sequence = x.sequence, query_row = x.query_row, key_row = x.key_row;
    split = x.split, split_count = x.splits, row = x.row, index = item, row_tile = 0;
    static_cast<SequenceBounds&>(*this) = bounds_of(g.sequences, x);
    inner = g.tile_heads.divide(tile_head);  // the key head
    head = tile_head - inner * static_cast<int>(g.tile_heads.divisor);
    outer = g.sequences.query_offsets != nullptr ? 0 : sequence;
  }

  // RowTile's, for a tile of a sequence.
  __device__ __forceinline__ bool exists() const { return split_count > 0; }
  __device__ __forceinline__ const SequenceBounds& bounds(const TileArguments&) const { return *this; }
  __device__ __forceinline__ bool in_memory(const TileArguments&) const { return split_count > 1; }
  __device__ __forceinline__ int splits(const TileArguments&) const { return split_count; }
  __device__ __forceinline__ bool merges() const { return split_count > 1 && split == 0; }
  __device__ __forceinline__ std::int64_t output_row(const TileArguments& g, int packed_row) const {
    if (g.pack.divide(packed_row) >= sq) return -1;
    return RowTile::output_row(g, packed_row) + query_row;
  }
  __device__ __forceinline__ std::int64_t partial_row(const TileArguments& g, int of_tile) const {
    return static_cast<std::int64_t>(item) * g.partial_rows + of_tile;
  }
  template <class Arguments>
  __device__ __forceinline__ int partial_step(const Arguments& g) const {
    return static_cast<int>(g.schedule.heads.divisor) * g.partial_rows;
  }
  __device__ __forceinline__ int first_position() const { return query_row; }
  __device__ __forceinline__ int first_key() const { return key_row; }
  __device__ __forceinline__ int key_batch() const { return sequence; }
  /// Narrows the tiles of keys [begin, end) that some row sees to the split's.
  __device__ __forceinline__ void narrow(int& begin, int& end) const {
    if (split_count <= 1) return;
    const int tiles = (max(end - begin, 0) + split_count - 1) / split_count;
    begin += split * tiles, end = min(end, begin + tiles);
  }
  template <class Operand>
  __device__ __forceinline__ std::int64_t query_offset(const Operand& x) const {
    return RowTile::query_offset(x) + query_row * x.row;
  }
};

/// The tiles of a split's keys.
template <int kKeys>
struct KeyWalk<kKeys, Masking::sequences> {
  int n, begin, inner, edge;
  __device__ __forceinline__ KeyWalk(const TileArguments& g, const SequenceTile& tile) {
    const int first = position_of(g, tile, tile.row), last = position_of(g, tile, tile.row + g.tile_rows - 1);
    begin = keys_begin(tile, first) / kKeys;
    inner = (keys_begin(tile, last) + kKeys - 1) / kKeys;
    edge = keys_end(tile, first) / kKeys;
    int end = (keys_end(tile, last) + kKeys - 1) / kKeys;
    tile.narrow(begin, end);
    n = end - 1;
  }
  __device__ __forceinline__ bool valid() const { return n >= begin; }
  __device__ __forceinline__ void next() { --n; }
  __device__ __forceinline__ bool on_edge() const { return n < inner || n >= edge; }
  static constexpr bool on_mask() { return false; }
};

/// The CTA's tile for its main loop: in registers or, as a sequence's has too many, in shared memory. Called by all threads.
__device__ __forceinline__ RowTile& hold_tile(RowTile& tile) { return tile; }
__device__ __forceinline__ SequenceTile& held_tile() {
  __shared__ alignas(16) unsigned char memory[sizeof(SequenceTile)];
  return *reinterpret_cast<SequenceTile*>(memory);
}
__device__ __forceinline__ SequenceTile& hold_tile(const SequenceTile& tile) {
  SequenceTile& held = held_tile();
  if (threadIdx.x == 0) held = tile;
  __syncthreads();
  return held;
}

template <Masking kMasking>
using TileOf = std::conditional_t<kMasking == Masking::sequences, SequenceTile, RowTile>;
template <class Arguments, Masking kMasking>
using ArgumentsOf = std::conditional_t<kMasking == Masking::sequences, WithSequences<Arguments>, Arguments>;

}  // namespace xgemm::attention
