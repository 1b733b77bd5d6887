// Predicted time of a tile on a problem: the longest of what multiplies, what L2 delivers and what memory delivers.
#pragma once
#include "matmul/plan/machine.h"
#include "matmul/plan/tiles.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

inline constexpr double kNextLaunch = 1.95;  ///< microseconds: a kernel that depends on the one before

/// What memory and L2 have to deliver for a problem, and in which time. All times in microseconds.
struct Roofline {
  Machine machine;
  double size, k;           ///< bytes of an element; K
  double operands, result;  ///< bytes of A and B, and of C, once
  bool ragged;              ///< fp32 rows of C begin unaligned

  Roofline(const Problem& p, const DeviceProperties& gpu);
  /// A product in `tiles` tiles of `t`, whose K `splits` CTAs share, `depth` each, without launches and the addition of splits.
  /// `l2_bytes`: the rate of the loads, 0 if it never limits; `boxes`: C leaves registers or boxes of TMA as the tile has it, so
  /// that ragged rows take longer.
  double product(const TileInfo& t, std::int64_t tiles, std::int64_t splits, std::int64_t depth, double l2_bytes = 0,
                 bool boxes = false) const;
  double memory(double times_c = 1) const { return 1e6 * (operands + times_c * result) / machine.read_bytes; }
  double stores_of_c() const;                                ///< as memory's times_c, if by boxes
  double join(double launch, std::int64_t of_cta) const {    ///< splits' sums meet: so many bytes of each CTA
    return launch + 1e6 * static_cast<double>(of_cta) / machine.join_bytes;
  }
};

/// `ctas` of a tile, `depth` of K each, on `at_once` SMs.
double compute_us(const TileInfo& t, std::int64_t ctas, std::int64_t depth, std::int64_t at_once);
double longest_us(double compute, double memory, double l2 = 0);  ///< what is shorter is not all hidden

}  // namespace xgemm::matmul
