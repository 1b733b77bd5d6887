// What is asked of the planner, and the predicted time of a tile: the longest of what multiplies, what L2 delivers and what
// memory delivers. Microseconds, unless a name says otherwise.
#pragma once
#include <optional>

#include "device/integer.h"
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

  std::int64_t tiles(const TileInfo& t) const { return ceil_div(p.m, t.m) * ceil_div(p.n, t.n) * p.batches; }
  /// A product in `tiles` tiles of `t`, whose K `splits` CTAs share, `depth` each, without launches and the addition of splits.
  /// `l2_bytes`: the rate of the loads, 0 if it never limits; `times_c`: as memory's.
  double product(const TileInfo& t, std::int64_t tiles, std::int64_t splits, std::int64_t depth, double l2_bytes = 0,
                 double times_c = 1) const;
  double memory(double times_c = 1) const { return move(bytes_a + bytes_b + times_c * bytes_c); }  ///< A, B and C once
  double stores_of_c() const;  ///< by boxes of TMA: as times_c
  double move(double bytes) const { return 1e6 * bytes / machine.read_bytes; }
  /// A launch after the product that reads and writes so many bytes of sums; 0: none is needed.
  double next_launch(std::int64_t bytes) const { return bytes > 0 ? kNextLaunch + move(static_cast<double>(bytes)) : 0; }
  double join(double bytes_of_cta) const { return 1e6 * bytes_of_cta / machine.join_bytes; }  ///< sums of splits that meet
};

/// `ctas` of a tile, `depth` of K each, on `at_once` SMs.
double compute_us(const TileInfo& t, std::int64_t ctas, std::int64_t depth, std::int64_t at_once);
double longest_us(double compute, double memory, double l2 = 0);  ///< what is shorter is not all hidden

/// Calls f(tile, info) for the tiles that `forced` does not leave out.
template <class Tile, std::size_t kCount, class F>
void each_tile(const Tiles<kCount>& tiles, std::string_view forced, const F& f) {
  for (std::size_t i = 0; i < kCount; ++i)
    if (!leaves_out_tile(forced, tiles[i].name)) f(static_cast<Tile>(i), tiles[i]);
}

/// Calls f(splits, each) for 1, 2, 4 ... splits of `units`, `each` units long.
template <class F>
void each_halving(std::int64_t units, const F& f) {
  for (std::int64_t each = units;; each = ceil_div(each, 2)) {
    f(ceil_div(units, each), each);
    if (each == 1) return;
  }
}

/// Keeps the candidate of least time; of equal ones the first.
template <class FamilyPlan>
struct Least {
  std::optional<FamilyPlan> best;
  void offer(const FamilyPlan& plan) {
    if (!best || plan.seconds < best->seconds) best = plan;
  }
  void consider(FamilyPlan plan, double us) { plan.seconds = 1e-6 * us, offer(plan); }
};

}  // namespace xgemm::matmul
