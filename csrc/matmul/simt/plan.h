// The plan of tiles on CUDA cores (simt/kernel.cuh), which can compute every problem.
//
// Order of additions. K is divided into chunks of `chunk` (a function of N and K). A chunk's products are added one after
// another by fused multiply-adds from zero; the chunks' sums are added in order. Every tile and every split does exactly this,
// so the bits of a row of the result depend on N, K and the dtype alone, never on M, the batch or the GPU.
#pragma once
#include "matmul/order.h"
#include "matmul/plan/tiles.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

struct SimtPlan {
  SimtTile tile;
  std::int64_t chunk;   ///< k-length whose products are added one after another
  std::int64_t chunks;  ///< ceil(k / chunk), at least 1
  std::int64_t splits;  ///< blocks that share a tile's chunks; more than 1: partial sums through the workspace
  std::int64_t workspace_bytes;
  bool vector;     ///< operands are loaded four elements at a time
  double seconds;  ///< predicted
};

}  // namespace xgemm::matmul
