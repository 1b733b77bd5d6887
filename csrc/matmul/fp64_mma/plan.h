// The plan of the fp64 kernel on tensor cores, fp64_mma/kernel.cu.
//
// Order of additions. K is divided into segments. A segment's products go through mma.sync in order, from zero; the segments'
// sums are added in order. A batch-invariant problem's segments are a function of N and K alone (fp64_segment), whatever the tile
// and the splits; another's are its splits.
#pragma once
#include <utility>

#include "matmul/order.h"
#include "matmul/plan/tiles.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

struct Fp64Plan {
  Fp64Tile tile;
  std::int64_t blocks;        ///< k-blocks, at least one
  std::int64_t segment;       ///< k-blocks of a segment
  std::int64_t split_blocks;  ///< k-blocks of a CTA: all, or whole segments
  std::int64_t splits;        ///< CTAs that share a tile's k; more than 1: segments' sums through the workspace
  std::int64_t workspace_bytes;
  double seconds;  ///< predicted
};

/// A product of one column as one of one row, which lies in memory alike: there is a tile for few rows.
inline Problem fp64_problem(Problem p) {
  if (p.n != 1) return p;
  std::swap(p.a, p.b), std::swap(p.m, p.n);
  for (Operand* x : {&p.a, &p.b, &p.c, &p.residual}) std::swap(x->row_stride, x->col_stride);
  p.bias.col_stride = 0;
  return p;
}

/// Has a thread registers for the total of several segments beside the sums of one?
constexpr bool has_totals(Fp64Tile tile) { return tile != Fp64Tile::t64x128; }

/// How a CTA divides its tile among its warps, and the k-blocks in its shared memory, which fit an SM of 164 KiB.
struct Fp64Geometry {
  int warps_rows, warps_columns, slots;
  constexpr int threads() const { return 32 * warps_rows * warps_columns; }
};
constexpr Fp64Geometry geometry(Fp64Tile tile) {
  switch (tile) {
    case Fp64Tile::t64x128: return {2, 2, 3};
    case Fp64Tile::t16x64: return {1, 4, 5};
    default: return {2, 2, 4};
  }
}

}  // namespace xgemm::matmul
