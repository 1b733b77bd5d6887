// The plan and the tiles' geometry of mma/large.cuh.
#pragma once
#include <cstdint>

#include "matmul/plan/tiles.h"
#include "matmul/simt/plan.h"
#include "matmul/tensor_operand.h"

namespace xgemm::matmul {

/// How the CTA of a tile divides it among its warps.
struct LargeGeometry {
  int rows, columns, beside;  ///< as TileInfo's m, n and per_sm
  int warps_rows, warps_columns;
  int slots;  ///< k-blocks in shared memory, three or more
  constexpr int threads() const { return 32 * warps_rows * warps_columns; }
};
constexpr LargeGeometry large_geometry(LargeTile tile) {
  const TileInfo& t = info(tile);
  switch (tile) {
    case LargeTile::t128x256: return {t.m, t.n, t.per_sm, 2, 4, 3};
    case LargeTile::t128x128: return {t.m, t.n, t.per_sm, 2, 2, 3};
    case LargeTile::x2_128x128: return {t.m, t.n, t.per_sm, 2, 4, 5};
    default: return {t.m, t.n, t.per_sm, 2, 2, 3};
  }
}

struct LargePlan {
  LargeTile tile;
  int parts;                  ///< fp16 parts that fp32 operands are split in: 2 "highest", 1 "high"; 0: half precision
  TensorOperand a, b;         ///< in place, packed, or split
  std::int64_t splits;        ///< of K, a CTA each
  std::int64_t split_blocks;  ///< k-blocks of a split
  SimtPlan fallback;          ///< fp32: for the elements that fp16 parts cannot represent
  std::int64_t workspace_bytes, partial_bytes, counter_bytes;
  double seconds;  ///< predicted
};

}  // namespace xgemm::matmul
