// Which tiles of rows a CTA computes, and in which order.
#pragma once
#include "attention/tiles/arguments.h"

namespace xgemm::attention {

/// The items of this CTA, `for (SplitItems item(g); item.valid(); item.next())`, in serpentine order over the CTAs (0 .. n-1,
/// n-1 .. 0, ...): with the longest of all heads first, each CTA gets long and short ones alike, without a counter.
struct SplitItems {
  const TileArguments& g;
  int index, round = 0;
  __device__ __forceinline__ explicit SplitItems(const TileArguments& arguments)
      : g(arguments), index(static_cast<int>(blockIdx.x)) {}
  __device__ __forceinline__ bool valid() const { return index < g.items; }
  __device__ __forceinline__ void next() {
    const int ctas = static_cast<int>(gridDim.x), cta = static_cast<int>(blockIdx.x);
    ++round;
    index = round * ctas + (round % 2 ? ctas - 1 - cta : cta);
  }
};

}  // namespace xgemm::attention
