// The order in which CTAs take the tiles of a batch of matrices.
#pragma once

namespace xgemm {

/// A tile's row and column of tiles, and its batch.
struct TilePlace {
  unsigned row, column, batch;
};

/// Tile `index` of matrices of `rows` by `columns` tiles: groups of kGroup rows of tiles, column by column in each group, so
/// that CTAs that run at the same time share operands in L2.
template <unsigned kGroup>
__device__ __forceinline__ TilePlace tile_at(unsigned index, unsigned rows, unsigned columns) {
  const unsigned per_batch = rows * columns, batch = index / per_batch, in_batch = index - batch * per_batch,
                 group = in_batch / (kGroup * columns), in_group = in_batch - group * kGroup * columns,
                 height = min(kGroup, rows - group * kGroup), column = in_group / height;
  return {group * kGroup + in_group - column * height, column, batch};
}

}  // namespace xgemm
