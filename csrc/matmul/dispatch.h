// From a plan's values to template arguments.
#pragma once
#include <utility>

namespace xgemm::matmul {

/// Calls run.operator()<kTile>() for the tile of a table of `kCount` tiles that equals `tile`; returns its result.
template <std::size_t kCount, std::size_t kIndex = 0, class Tile, class Run>
auto dispatch_tile(Tile tile, const Run& run) {
  constexpr Tile kTile = static_cast<Tile>(kIndex);
  if constexpr (kIndex + 1 < kCount) {
    if (tile != kTile) return dispatch_tile<kCount, kIndex + 1>(tile, run);
  }
  return run.template operator()<kTile>();
}

/// Calls run.operator()<a, b>(). `a`, `b`: is A, is B contiguous along k?
template <class Run>
void dispatch_layouts(bool a, bool b, const Run& run) {
  if (a)
    b ? run.template operator()<true, true>() : run.template operator()<true, false>();
  else
    b ? run.template operator()<false, true>() : run.template operator()<false, false>();
}

}  // namespace xgemm::matmul
