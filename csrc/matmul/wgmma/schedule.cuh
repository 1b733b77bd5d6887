// Which tiles, and which splits of K, a CTA computes, and in which order.
#pragma once
#include "matmul/wgmma/arguments.cuh"

namespace xgemm::matmul::wgmma_detail {

struct Tile {
  int row, column, batch;  ///< first row and column of C
};

/// What a CTA does at a time: k-blocks [begin, end) of a tile.
struct Item {
  int tile, split, begin, end;
};

/// Item `index`. `rank`: this CTA's in a cluster that splits K, which is its split; -1: none.
template <WgmmaConfig kConfig>
__device__ __forceinline__ Item item_at(const WgmmaArguments& g, int index, int rank, int blocks) {
  Item item{index, rank, 0, blocks};
  if (kConfig.may_split_memory() && g.memory_splits > 1) {
    item.tile = index / g.memory_splits;
    item.split = index - item.tile * g.memory_splits;
  }
  if (item.split >= 0) {
    item.begin = min(blocks, item.split * g.k.split_blocks);
    item.end = min(blocks, item.begin + g.k.split_blocks);
  } else {
    item.split = 0;
  }
  return item;
}

/// Tile `index`: column by column inside groups of `group` rows of tiles, so that the operands of the tiles in flight stay in
/// L2. `rank`: this CTA's in a multicast pair. The last tiles of a K-major operand begin at last_row or last_column and overlap
/// their neighbours, because TMA is slower for lines out of bounds. Elements that are computed twice have the same bits.
template <WgmmaConfig kConfig>
__device__ __forceinline__ Tile locate(const WgmmaArguments& g, int index, int rank = 0) {
  const auto& s = g.schedule;
  const int batch = s.per_batch.divide(index), within = index - batch * static_cast<int>(s.per_batch.divisor);
  const int group = s.per_group.divide(within), in_group = within - group * static_cast<int>(s.per_group.divisor);
  const bool whole = (group + 1) * kConfig.group <= g.tiles.rows;
  const int height = whole ? kConfig.group : static_cast<int>(s.last_rows.divisor);
  int column = whole ? in_group / kConfig.group : s.last_rows.divide(in_group);
  int row = group * kConfig.group + (in_group - column * height);
  if (kConfig.may_multicast() && g.tiles.multicast)
    (kConfig.multicasts_a() ? column : row) = 2 * (kConfig.multicasts_a() ? column : row) + rank;
  return {min(row * kConfig.tile_m, g.tiles.last_row), min(column * g.tiles.width, g.tiles.last_column), batch};
}

/// Called by a warp: prefetches to L2 the first bytes of b's lines that this CTA reads. No thread sees the data, so this need
/// not wait for the previous kernel.
__device__ __forceinline__ void prefetch_b(const WgmmaArguments& g, const Item& item, const Tile& tile) {
  const int begin = item.begin * kWgmmaTileK, bytes = min(g.prefetch.bytes, 2 * (static_cast<int>(g.problem.k) - begin)) & ~15;
  const int lines = min(g.tiles.width, static_cast<int>(g.problem.n) - tile.column);
  if (bytes <= 0) return;
  for (int line = static_cast<int>(threadIdx.x) % 32; line < lines; line += 32)
    asm volatile(
        "cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(g.prefetch.b + (tile.column + line) * g.prefetch.step + 2 * begin),
        "r"(bytes)
        : "memory");
}

}  // namespace xgemm::matmul::wgmma_detail
