// The part of wgmma's plan that chooses a tile, and how CTAs share its k. Pure host code.
#pragma once
#include "matmul/wgmma/plan.h"

namespace xgemm::matmul {

struct WgmmaTileChoice {
  WgmmaTile tile;
  std::int64_t splits, cluster, memory_splits, columns;  ///< as in WgmmaPlan
  bool multicast = false;
  double cycles = 1e30;  ///< predicted; as it is if no tile can do the problem
};

/// k-blocks of a split.
std::int64_t split_blocks(std::int64_t k, std::int64_t splits);

/// The tile of least predicted time, and how CTAs share it. `splits`: of K; 0: as many as are best. `lines_of_a`, `lines_of_b`:
/// cache lines that a row of the operands' boxes touches.
WgmmaTileChoice choose_tile(int parts, bool b_is_k_major, const Problem& problem, std::int64_t splits, int sm_count,
                            std::string_view forced, double lines_of_a = 1, double lines_of_b = 1);

}  // namespace xgemm::matmul
