// Which tiles of rows a CTA computes, and which keys a row sees.
//
// Order: sections of heads whose keys and values fit L2; in a section the last row tile of every head first, since with a
// causal mask it is the longest. A CTA's first item is its own index; a counter in memory gives the others, so that a CTA with
// long tiles takes fewer. The producer fetches them and tells the consumers.
#pragma once
#include "attention/tiles/arguments.h"
#include "attention/tiles/tile.h"
#include "device/warp.cuh"

namespace xgemm::attention {

__device__ __forceinline__ int item_count(const TileArguments& g) { return g.items; }
__device__ __forceinline__ int merged_tiles(const TileArguments& g) { return g.items / static_cast<int>(g.splits.divisor); }

/// The producer's side: fetches the next item, after all loads of this one: earlier, it would wait for this CTA's long item while
/// other CTAs have none left. Called by a whole warp; returns `items` or more if there is none. The last request resets the
/// counter to zero.
__device__ __forceinline__ int fetch_item(const TileArguments& g, int items) {
  if (g.next_item == nullptr) return items;
  unsigned taken = 0;
  if (threadIdx.x % 32 == 0) {
    taken = atomicAdd(g.next_item, 1u);  // each CTA's last request fails: `items` requests in all
    if (taken == static_cast<unsigned>(items) - 1) *g.next_item = 0;
  }
  return static_cast<int>(gridDim.x + __shfl_sync(kFullWarp, taken, 0));
}

/// fp32: the items of this CTA, `for (SplitItems item(g); item.valid(); item.next())`, in serpentine order over the CTAs (0 ..
/// n-1, n-1 .. 0, ...): with the longest of all heads first, each CTA gets long and short ones alike, without a counter.
struct SplitItems {
  const TileArguments& g;
  int index, round = 0;
  __device__ __forceinline__ explicit SplitItems(const TileArguments& arguments)
      : g(arguments), index(static_cast<int>(blockIdx.x)) {}
  __device__ __forceinline__ bool valid() const { return index < g.items; }
  __device__ __forceinline__ void next() {
    const int ctas = static_cast<int>(gridDim.x), cta = static_cast<int>(blockIdx.x);
    ++round;
    index = round * ctas + (round % 2 ? ctas - 1 - cta : cta);
  }
};

/// Positions, keys and limits of a sequence, under TileArguments' names.
struct SequenceBounds {
  int sq, sk, first, last;
};

/// The position of a packed row, the last one for rows past it, and the keys [begin, end) that it sees. `x`: TileArguments or
/// SequenceBounds.
template <class Bounds>
__device__ __forceinline__ int position_of(const TileArguments& g, const Bounds& x, int row) {
  return min(g.pack.divide(row), x.sq - 1);
}
template <class Bounds>
__device__ __forceinline__ int keys_begin(const Bounds& x, int position) {
  return max(0, position + x.first);
}
template <class Bounds>
__device__ __forceinline__ int keys_end(const Bounds& x, int position) {
  return max(0, min(x.sk, position + x.last));
}

/// One tile of rows against all keys, or against one split of them.
struct RowTile {
  int index, split;
  int row_tile, row;  ///< of its head; first packed row
  int head;           ///< query head within its group; 0 if the group is packed
  int inner, outer;   ///< batch
  RowTile() = default;
  __device__ __forceinline__ RowTile(const TileArguments& g, int item) {
    index = g.splits.divide(item), split = item - index * static_cast<int>(g.splits.divisor);
    const int section = g.section.divide(index), within = index - section * static_cast<int>(g.section.divisor);
    const int from_last = g.section_heads.divide(within), heads = static_cast<int>(g.section_heads.divisor);
    const int tile_head = section * heads + within - from_last * heads;
    const int batch = g.tile_heads.divide(tile_head);
    row_tile = g.row_tiles - 1 - from_last;
    row = row_tile * g.tile_rows;
    head = tile_head - batch * static_cast<int>(g.tile_heads.divisor);
    outer = g.inner.divide(batch);
    inner = batch - outer * static_cast<int>(g.inner.divisor);
  }
  /// The index of a packed row of this tile among all rows of the output; negative after the last position.
  __device__ __forceinline__ std::int64_t output_row(const TileArguments& g, int packed_row) const {
    const int position = g.pack.divide(packed_row), in_group = head + packed_row - position * static_cast<int>(g.pack.divisor);
    const std::int64_t batch = static_cast<std::int64_t>(outer) * static_cast<int>(g.inner.divisor) + inner;
    const std::int64_t group = static_cast<std::int64_t>(g.tile_heads.divisor) * g.pack.divisor;
    return position < g.sq ? (batch * group + in_group) * g.sq + position : -1;
  }

  // What Masking::sequences has instead is in sequences.cuh.
  static __device__ __forceinline__ RowTile find(const TileArguments& g, int item) { return RowTile(g, item); }
  /// The first split of a tile of rows, from an index below merged_tiles().
  static __device__ __forceinline__ RowTile to_merge(const TileArguments& g, int tile) {
    return RowTile(g, tile * static_cast<int>(g.splits.divisor));
  }
  static constexpr bool exists() { return true; }
  __device__ __forceinline__ const TileArguments& bounds(const TileArguments& g) const { return g; }
  /// Narrows the tiles of keys [begin, end) that some row sees to the split's.
  __device__ __forceinline__ void narrow(const TileArguments& g, int& begin, int& end) const {
    const int of_all = split + g.first_split;
    begin = max(begin, of_all * g.split_tiles), end = min(end, (of_all + 1) * g.split_tiles);
  }
  __device__ __forceinline__ bool in_memory(const TileArguments& g) const { return g.through_memory; }  ///< its results
  __device__ __forceinline__ int splits(const TileArguments& g) const { return static_cast<int>(g.splits.divisor); }
  static constexpr bool merges() { return true; }  ///< Is it the first of splits that are to be merged?
  /// The index of row `row` of the tile's split in memory; the same of the next split is `partial_step` rows further.
  __device__ __forceinline__ std::int64_t partial_row(const TileArguments& g, int of_tile) const {
    return (static_cast<std::int64_t>(index) * splits(g) + split) * g.partial_rows + of_tile;
  }
  __device__ __forceinline__ int partial_step(const TileArguments& g) const { return g.partial_rows; }
  // Coordinates in the operands: of the first position and key, and the keys' batch.
  static constexpr int first_position() { return 0; }
  static constexpr int first_key() { return 0; }
  __device__ __forceinline__ int key_batch() const { return outer; }
  /// Distance in elements of the tile's batch in an operand with such strides; of a sequence, of its first query.
  template <class Operand>
  __device__ __forceinline__ std::int64_t offset_in(const Operand& x) const {
    return outer * x.outer + inner * x.inner;
  }
  /// fp32: the tile's batch among an operand's own.
  __device__ __forceinline__ int batch_of(const TileArguments::Steps& steps) const {
    return inner * steps.inner + outer * steps.outer;
  }
};

/// The tiles of keys that an item needs, from the last to the first: `for (KeyWalk walk(g, tile); walk.valid(); walk.next())`.
/// Whole warps walk together.
template <int kKeys, Masking kMasking>
struct KeyWalk {
  int n;      ///< the current tile
  int begin;  ///< lower bound of the walk
  // Of the rows that the walk looks at:
  int inner, edge;  ///< each sees every key of tiles [inner, edge)
  int hidden;       ///< none sees a key of the tiles from here on
  // With a mask: which of the 32 tiles from `window` on are left, and which of these are kMixed.
  int window;
  unsigned present, mixed;
  const unsigned char* classes;

  /// Over what all rows of the tile see. It looks at `rows` of them, `from` on.
  template <class Tile>
  __device__ __forceinline__ KeyWalk(const TileArguments& g, const Tile& tile, int from, int rows) {
    const auto& bounds = tile.bounds(g);
    const auto position = [&](int row) { return position_of(g, bounds, tile.row + min(row, g.tile_rows - 1)); };
    const auto end_of = [&](int row) { return (keys_end(bounds, position(row)) + kKeys - 1) / kKeys; };
    begin = keys_begin(bounds, position(0)) / kKeys;
    inner = (keys_begin(bounds, position(from + rows - 1)) + kKeys - 1) / kKeys;
    edge = keys_end(bounds, position(from)) / kKeys;
    hidden = end_of(from + rows - 1);
    int end = end_of(g.tile_rows - 1);
    tile.narrow(g, begin, end);
    n = end - 1;
    if constexpr (has_mask(kMasking)) {
      classes = g.mask.classes + mask_tile(g, tile) * g.mask.key_tiles;
      window = end;
      present = 0;
      next();
    }
  }
  template <class Tile>
  __device__ __forceinline__ KeyWalk(const TileArguments& g, const Tile& tile) : KeyWalk(g, tile, 0, g.tile_rows) {}
  static __device__ __forceinline__ std::int64_t mask_tile(const TileArguments& g, const RowTile& tile) {
    const auto& steps = g.mask.steps;
    return static_cast<std::int64_t>(tile.outer) * steps.outer + tile.inner * steps.inner + tile.head * steps.head +
           tile.row_tile * steps.row;
  }

  __device__ __forceinline__ bool valid() const { return n >= begin; }
  __device__ __forceinline__ void next() {
    if constexpr (!has_mask(kMasking)) {
      --n;
    } else {
      while (present == 0 && window > begin) {  // the previous 32 tiles, or as many as there are
        const int end = window;
        window = max(begin, end - 32);
        const int mine = window + static_cast<int>(threadIdx.x) % 32;
        const int tile_class = mine < end ? __ldg(classes + mine) : kEmpty;
        present = __ballot_sync(kFullWarp, tile_class != kEmpty);
        mixed = __ballot_sync(kFullWarp, tile_class == kMixed);
      }
      const int last = 31 - __clz(static_cast<int>(present));
      n = present == 0 ? begin - 1 : window + last;
      present &= ~(1u << (last & 31));
    }
  }

  /// Do the edges (on_edge) or the mask (on_mask) affect the current tile?
  __device__ __forceinline__ bool on_edge() const { return n < inner || n >= edge; }
  __device__ __forceinline__ bool on_mask() const { return has_mask(kMasking) && (mixed >> ((n - window) & 31) & 1) != 0; }
};

}  // namespace xgemm::attention
