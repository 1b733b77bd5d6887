// How a CTA of mma.sync kernels divides its tile among its warps.
#pragma once
#include "matmul/plan/tiles.h"

namespace xgemm::matmul {

struct MmaGeometry {
  int rows, columns, beside;  ///< as TileInfo's m, n and per_sm
  int warps_rows, warps_columns;
  int slots;  ///< most k-blocks in shared memory, three or more
  constexpr int threads() const { return 32 * warps_rows * warps_columns; }
};

constexpr MmaGeometry geometry(MmaTile tile) {
  const TileInfo& t = info(tile);
  switch (tile) {
    case MmaTile::t16x64: return {t.m, t.n, t.per_sm, 1, 4, 6};
    case MmaTile::tf32_128x64: return {t.m, t.n, t.per_sm, 4, 1, 4};
    case MmaTile::tf32_64x128: return {t.m, t.n, t.per_sm, 2, 4, 4};
    default: return {t.m, t.n, t.per_sm, 2, 2, is_tf32(tile) ? 4 : 6};
  }
}
constexpr MmaGeometry geometry(LargeTile tile) {
  const TileInfo& t = info(tile);
  switch (tile) {
    case LargeTile::t128x256: return {t.m, t.n, t.per_sm, 2, 4, 3};
    case LargeTile::x2_128x128: return {t.m, t.n, t.per_sm, 2, 4, 5};
    default: return {t.m, t.n, t.per_sm, 2, 2, 3};
  }
}

}  // namespace xgemm::matmul
