// Plans of the kernels on mma.sync.
#pragma once
#include <cstdint>

#include "matmul/plan/tiles.h"
#include "matmul/problem.h"
#include "matmul/simt/plan.h"
#include "matmul/tensor_operand.h"

namespace xgemm::matmul {

inline constexpr int kMmaRowBytes = 128;  ///< of a line of a k-block: 64 k, or 32 of fp32

/// How a CTA divides its tile among its warps.
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

/// Of the one-launch kernel for half-precision products that are small or narrow, and for fp32 ones in tf32 ("high" and
/// "medium"), mma/kernel.cuh.
struct MmaPlan {
  MmaTile tile;
  int bytes_a, bytes_b;        ///< multiples of which an operand's rows start and end at: 16, 8 (fp32), 4 or 2
  std::int64_t splits;         ///< of K (fp32), a CTA each: split_k.cuh
  std::int64_t split_blocks;   ///< k-blocks of a split
  std::int64_t partial_bytes;  ///< sums of splits
  std::int64_t counter_bytes;  ///< zeros before and after the launch
  double seconds;              ///< predicted
  bool is_unaligned() const { return bytes_a < 16 || bytes_b < 16; }
};

/// Of mma/large.cuh.
struct LargePlan {
  LargeTile tile;
  int parts;                  ///< fp16 parts that fp32 operands are split in: 2 "highest", 1 "high"; 0: half precision
  TensorOperand a, b;         ///< in place, packed, or split
  std::int64_t splits;        ///< of K, a CTA each
  std::int64_t split_blocks;  ///< k-blocks of a split
  SimtPlan fallback;          ///< fp32: for the elements that fp16 parts cannot represent
  std::int64_t workspace_bytes, partial_bytes;
  double seconds;  ///< predicted
};

}  // namespace xgemm::matmul
