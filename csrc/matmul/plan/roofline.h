// Predicted time of a tile on a problem: launches, and the longest of what multiplies, what L2 and what memory deliver.
#pragma once
#include <string_view>

#include "matmul/order.h"
#include "matmul/plan/machine.h"
#include "matmul/plan/tiles.h"
#include "matmul/tensor_operand.h"

namespace xgemm::matmul {

// Microseconds. `ctas`: of a tile, with `k` of K each; `rate`: bytes per second.
double compute_us(const TileInfo& t, std::int64_t ctas, std::int64_t k, int sm_count);
double memory_us(const Problem& p, const Machine& machine, double times_c = 1);  ///< A, B and C once; C so many times
double stores_of_c(const Problem& p);  ///< fp32 in boxes of TMA or wgmma's registers: as times_c
double l2_us(const Problem& p, const TileInfo& t, std::int64_t tiles, double rate);
double longest_us(double compute, double memory, double l2 = 0);             ///< what is shorter is not all hidden
double join_us(double launch, double bytes_of_cta, const Machine& machine);  ///< splits' sums meet: `bytes_of_cta` each

inline constexpr double kNextLaunch = 1.95;  ///< microseconds: a kernel that depends on the one before

/// How wgmma/kernel.cuh computes a product: WgmmaPlan says more of each.
struct WgmmaChoice {
  WgmmaTile tile;
  std::int64_t splits = 1, cluster = 1, memory_splits = 1, columns = 0;
  bool multicast = false;
  double us = 1e30;  ///< without passes over operands; as it is if no tile can do the problem
};

/// The tile of least predicted time, and how CTAs share it. `splits`: of K; 0: as many as are best.
WgmmaChoice fastest_wgmma(const Problem& p, int parts, const TensorOperand& a, const TensorOperand& b, std::int64_t splits,
                          const Machine& machine, std::string_view forced);

}  // namespace xgemm::matmul
