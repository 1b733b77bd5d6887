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
  const int begin = g.schedule.tile_keys.divide(keys_begin(x, position_of(g, x, item.row))),
            end = g.schedule.tile_keys.divide(keys_end(x, position_of(g, x, item.row + g.tile_rows - 1)) +
                                              static_cast<int>(g.schedule.tile_keys.divisor) - 1);
  return max(end - begin, 0);
}

/// Listed items that exist. CTAs that take items from a counter see no others.
template <class Base>
__device__ __forceinline__ int item_count(const WithSequences<Base>& g) {
  return __ldg(&g.schedule.list[g.schedule.entries].sequence) * static_cast<int>(g.schedule.heads.divisor);
}

/// Fetches the beginning of a sequence's table to L2 while its length, on which the first page depends, is on its way.
__device__ __forceinline__ void prefetch_pages(const Sequences& s, int sequence) {
  const int entry = static_cast<int>(threadIdx.x) * 32;  // a cache line each
  if (s.table != nullptr && s.page_rows.divide(s.max_k - 1) >= entry)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(s.table + sequence * s.table_step + entry));
}

/// The item of an entry of a schedule without a list, where a sequence has one tile of rows; or, to merge them, a sequence's
/// first split, whose entry replaces `wanted`. Called by whole warps, each of which reads all lengths.
template <class Arguments>
__device__ __forceinline__ SequenceItem divide_sequences(const Arguments& g, int& wanted, bool merging) {
  constexpr float kMergeTiles = 3;  // that a CTA reads while splits are merged, a launch more
  constexpr int kMine = kDividedSequences / kWarpSize;
  const SequenceSchedule& order = g.schedule;
  if (order.least_tiles == 0) {
    prefetch_pages(g.sequences, wanted);
    SequenceItem item = describe_sequence(g.sequences, wanted);
    item.splits = item.sq > 0;
    return item;
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, heads = static_cast<int>(order.heads.divisor);
  int tiles[kMine], longest = 1;  // of every 32nd sequence, from `lane` on; tiles: negative without rows
  float work = 0;
#pragma unroll
  for (int k = 0; k < kMine; ++k) {
    const int i = k * kWarpSize + lane;
    tiles[k] = -1;
    if (i >= g.sequences.count) continue;
    const SequenceItem item = describe_sequence(g.sequences, i);
    if (item.sq > 0) tiles[k] = visited_tiles(g, item);
    longest = max(longest, tiles[k]), work += static_cast<float>(max(tiles[k], 0));
  }
  work = warp_reduce(work, [](float x, float y) { return x + y; }) * static_cast<float>(heads);
  longest = warp_reduce(longest, [](int x, int y) { return max(x, y); });
  // Whole sequences, if the longest one ends with the others.
  const bool whole = static_cast<float>(longest) <= work / order.readers + kMergeTiles;
  const int fair = static_cast<int>(ceilf(work / static_cast<float>(order.splits * heads)));
  const int split = whole ? longest : max(order.least_tiles, fair);

  int entry = 0;  // the first of the sequences that follow
#pragma unroll
  for (int k = 0; k < kMine; ++k) {
    if (k * kWarpSize >= g.sequences.count) break;
    const int splits = tiles[k] < 0 ? 0 : max(1, (tiles[k] + split - 1) / split);
    int until = splits;  // of the sequences up to this lane's
#pragma unroll
    for (int offset = 1; offset < kWarpSize; offset *= 2) {
      const int earlier = __shfl_up_sync(kFullWarp, until, offset);
      if (lane >= offset) until += earlier;
    }
    const unsigned found = __ballot_sync(kFullWarp, merging ? k * kWarpSize + lane == wanted : entry + until > wanted);
    if (found != 0) {
      const int of_lane = __ffs(static_cast<int>(found)) - 1;
      SequenceItem item = describe_sequence(g.sequences, k * kWarpSize + of_lane);
      item.splits = __shfl_sync(kFullWarp, splits, of_lane);
      entry += __shfl_sync(kFullWarp, until, of_lane) - item.splits;
      item.split = merging ? 0 : wanted - entry;
      if (merging) wanted = entry;
      return item;
    }
    entry += __shfl_sync(kFullWarp, until, kWarpSize - 1);
  }
  return {.splits = 0};
}

/// Tiles of rows that may have splits to merge: of all items of a list, or of all sequences.
template <class Base>
__device__ __forceinline__ int merged_tiles(const WithSequences<Base>& g) {
  return g.schedule.list != nullptr ? g.items : g.sequences.count * static_cast<int>(g.schedule.heads.divisor);
}

struct SequenceTile : RowTile, SequenceBounds {
  int sequence, item, split_count, query_row, key_row;

  /// An item of a list.
  template <class Arguments>
  __device__ __forceinline__ SequenceTile(const Arguments& g, int item) {
    const int entry = g.schedule.heads.divide(item);
    const int4* const from = reinterpret_cast<const int4*>(g.schedule.list + entry);
    const int4 a = __ldg(from), b = __ldg(from + 1);
    set(g, {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}, entry, item - entry * static_cast<int>(g.schedule.heads.divisor));
  }
  /// An item, of a list or not. Called by whole warps.
  template <class Arguments>
  static __device__ __forceinline__ SequenceTile find(const Arguments& g, int item, bool merging = false) {
    if (g.schedule.list != nullptr) return SequenceTile(g, item);
    int entry = g.schedule.heads.divide(item);
    const int tile_head = item - entry * static_cast<int>(g.schedule.heads.divisor);
    const SequenceItem of_sequence = divide_sequences(g, entry, merging);
    SequenceTile tile;
    tile.set(g, of_sequence, entry, tile_head);
    return tile;
  }

 private:
  SequenceTile() = default;
  template <class Arguments>
  __device__ __forceinline__ void set(const Arguments& g, const SequenceItem& x, int entry, int tile_head) {
    item = entry * static_cast<int>(g.schedule.heads.divisor) + tile_head;
    sequence = x.sequence, query_row = x.query_row, key_row = x.key_row;
    split = x.split, split_count = x.splits, row = x.row, index = item, row_tile = 0;
    static_cast<SequenceBounds&>(*this) = bounds_of(g.sequences, x);
    inner = g.tile_heads.divide(tile_head);  // the key head
    head = tile_head - inner * static_cast<int>(g.tile_heads.divisor);
    outer = g.sequences.query_offsets != nullptr ? 0 : sequence;
  }

 public:
  // RowTile's, for a tile of a sequence.
  template <class Arguments>
  static __device__ __forceinline__ SequenceTile to_merge(const Arguments& g, int tile) {
    return find(g, tile, true);
  }
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
  __device__ __forceinline__ void narrow(const TileArguments&, int& begin, int& end) const {
    if (split_count <= 1) return;
    const int tiles = (max(end - begin, 0) + split_count - 1) / split_count;
    begin += split * tiles, end = min(end, begin + tiles);
  }
  template <class Operand>
  __device__ __forceinline__ std::int64_t offset_in(const Operand& x) const {
    return RowTile::offset_in(x) + query_row * x.row;
  }
};

/// The CTA's tile for its main loop: in registers or, as a sequence's has too many, in shared memory. Called by all threads.
__device__ __forceinline__ const RowTile& hold_tile(const RowTile& tile) { return tile; }
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
