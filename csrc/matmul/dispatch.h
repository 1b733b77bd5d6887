// From a plan's values to template arguments.
#pragma once
#include "device/numeric.cuh"

namespace xgemm::matmul {

/// Calls run.operator()<kTile>() for the tile of a table of `kCount` tiles that equals `tile`.
template <std::size_t kCount, class Tile, class Run>
void dispatch_tile(Tile tile, const Run& run) {
  with_index<kCount>(static_cast<int>(tile), [&](auto index) { run.template operator()<static_cast<Tile>(index())>(); });
}

/// Calls run.operator()<a, b>().
template <class Run>
void dispatch_flags(bool a, bool b, const Run& run) {
  if (a)
    b ? run.template operator()<true, true>() : run.template operator()<true, false>();
  else
    b ? run.template operator()<false, true>() : run.template operator()<false, false>();
}

}  // namespace xgemm::matmul
