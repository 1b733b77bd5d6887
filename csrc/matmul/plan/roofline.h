// What is asked of the planner, and the predicted time of a tile: the longest of what multiplies, what L2 delivers and what
// memory delivers. Microseconds, unless a name says otherwise.
#pragma once
#include "matmul/order.h"
#include "matmul/plan/legality.h"
#include "matmul/plan/machine.h"
#include "matmul/plan/tiles.h"

namespace xgemm::matmul {

inline constexpr double kNextLaunch = 1.95;  ///< a kernel that depends on the one before

/// A problem on a GPU, and what all families ask of them.
struct Question {
  const Problem& p;
  const DeviceProperties& gpu;
  std::string_view forced;
  Legal legal;
  Machine machine;
  double size;              ///< bytes of an element
  double bytes_a, bytes_b;  ///< of operands, once
  double bytes_c;
  std::int64_t chunk, chunks;  ///< of K, on CUDA cores
  bool quads_a, quads_b;       ///< has_vectors of four elements

  Question(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

  /// A product in `tiles` tiles of `t`, whose K `splits` CTAs share, `depth` each, without launches and the addition of splits.
  /// `l2_bytes`: the rate of the loads, 0 if it never limits; `times_c`: as memory's.
  double product(const TileInfo& t, std::int64_t tiles, std::int64_t splits, std::int64_t depth, double l2_bytes = 0,
                 double times_c = 1) const;
  double memory(double times_c = 1) const { return move(bytes_a + bytes_b + times_c * bytes_c); }  ///< A, B and C once
  double stores_of_c() const;  ///< by boxes of TMA: as times_c
  double move(double bytes) const { return 1e6 * bytes / machine.read_bytes; }
  double join(double bytes_of_cta) const { return 1e6 * bytes_of_cta / machine.join_bytes; }  ///< sums of splits that meet
};

/// `ctas` of a tile, `depth` of K each, on `at_once` SMs.
double compute_us(const TileInfo& t, std::int64_t ctas, std::int64_t depth, std::int64_t at_once);
double longest_us(double compute, double memory, double l2 = 0);  ///< what is shorter is not all hidden

}  // namespace xgemm::matmul
