// What families' candidates are made of: tiles, splits, the least time.
#pragma once
#include <optional>
#include <string_view>

#include "device/integer.h"
#include "matmul/plan/legality.h"
#include "matmul/plan/tiles.h"

namespace xgemm::matmul {

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
