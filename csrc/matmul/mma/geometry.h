// How a CTA of mma/kernel.cuh divides its tile among its warps.
#pragma once
#include "matmul/plan/tiles.h"

namespace xgemm::matmul {

struct MmaGeometry {
  int warps_rows, warps_columns;
  int stages;  ///< k-blocks in shared memory: three or more, four where elements go through registers (operands.cuh)
  constexpr int threads() const { return 32 * warps_rows * warps_columns; }
};

constexpr MmaGeometry geometry(MmaTile tile) {
  switch (tile) {
    case MmaTile::t128x256: return {2, 4, 3};
    case MmaTile::x2_128x128: return {2, 4, 5};
    case MmaTile::t128x128:
    case MmaTile::x2_64x64: return {2, 2, 3};
    case MmaTile::t16x64: return {1, 4, 5};
    case MmaTile::tf32_128x64: return {4, 1, 4};
    case MmaTile::tf32_64x128: return {2, 4, 4};
    default: return {2, 2, 4};
  }
}

constexpr int element_bytes(MmaTile tile) { return is_tf32(tile) ? 4 : 2; }
constexpr int parts_of(MmaTile tile) { return has_two_parts(tile) ? 2 : 1; }
constexpr int shared_bytes(MmaTile tile) {
  return geometry(tile).stages * parts_of(tile) * element_bytes(tile) * info(tile).k * (info(tile).m + info(tile).n);
}

}  // namespace xgemm::matmul
