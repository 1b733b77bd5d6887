// How the CTA of a tile of fp64_mma/kernel.cuh divides it among its warps, and its shared memory.
#pragma once
#include "matmul/fp64_mma/plan.h"

namespace xgemm::matmul {

struct Fp64Geometry {
  static constexpr int kProducers = 128;  ///< threads that only load: a warpgroup, which hands over its registers
  int rows, columns, per_sm;              ///< as TileInfo's m, n and per_sm: registers are budgeted for so many CTAs
  int warps_rows, warps_columns;          ///< that multiply
  int slots;                              ///< k-blocks in shared memory
  int slots_beside_totals;                ///< the same beside the sums of finished segments
  constexpr int consumers() const { return 32 * warps_rows * warps_columns; }
  constexpr int threads() const { return consumers() + kProducers; }
  constexpr int registers() const { return 65536 / per_sm / threads() / 8 * 8; }  ///< of a thread at the launch
  constexpr int slot_bytes() const { return 8 * kFp64TileK * (rows + columns); }
  /// Shared memory of a CTA; `totals`: it adds up segments.
  constexpr int shared_bytes(bool totals) const {
    return 128 + (totals ? slots_beside_totals : slots) * slot_bytes() + (totals ? 8 * rows * columns : 0);
  }
};

constexpr Fp64Geometry geometry(Fp64Tile tile) {
  const TileInfo& t = info(tile);
  switch (tile) {
    case Fp64Tile::t128x96: return {t.m, t.n, t.per_sm, 4, 2, 8, 4};
    case Fp64Tile::t64x128: return {t.m, t.n, t.per_sm, 2, 2, 4, 2};
    case Fp64Tile::t96x64: return {t.m, t.n, t.per_sm, 2, 2, 5, 3};
    case Fp64Tile::t64x64: return {t.m, t.n, t.per_sm, 2, 2, 6, 5};
    case Fp64Tile::t64x32: return {t.m, t.n, t.per_sm, 2, 2, 6, 4};
    default: return {t.m, t.n, t.per_sm, 1, 4, 7, 6};
  }
}

}  // namespace xgemm::matmul
