// The plan of the fp64 kernel on tensor cores, fp64_mma/kernel.cuh.
//
// Order of additions. K is divided into segments (fp64_segment: a function of N and K). A segment's products go through
// mma.sync 16 k at a time, in order, from zero; the segments' sums are added in order. Every tile and every split does exactly
// this, so a row's bits depend on N and K alone.
#pragma once
#include "matmul/order.h"
#include "matmul/plan/tiles.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

struct Fp64Plan {
  Fp64Tile tile;
  std::int64_t blocks;        ///< k-blocks
  std::int64_t segment;       ///< k-blocks of a segment
  std::int64_t split_blocks;  ///< k-blocks of a CTA: all, or whole segments
  std::int64_t splits;        ///< CTAs that share a tile's k; more than 1: segments' sums through the workspace
  std::int64_t workspace_bytes;
  double seconds;  ///< predicted
};

}  // namespace xgemm::matmul
