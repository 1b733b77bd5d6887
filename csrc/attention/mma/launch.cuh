// Launches one instantiation of kernel.cuh or many_rows.cuh, chosen at run time.
#pragma once
#include <algorithm>
#include <utility>

#include "attention/mma/kernel.cuh"
#include "attention/mma/launch.h"
#include "attention/mma/many_rows.cuh"
#include "device/launch.h"

namespace xgemm::attention {

template <class Element, int kIndex, Masking kMasking>
void launch_mma_instance(const ArgumentsOf<MmaArguments, kMasking>& g, unsigned ctas, cudaStream_t stream) {
  constexpr auto kernel = attention_mma<Element, kIndex, kMasking>;
  constexpr Tile kTile = kMmaTiles[kIndex];
  constexpr int kBytes = mma_shared_bytes(kTile, has_mask(kMasking));
  static_assert(kBytes < kMmaAloneBytes);
  once_a_device<kernel>([](int device) {
    int most = 0;
    return cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess &&
           cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, std::min(most, kMmaAloneBytes)) ==
               cudaSuccess;
  });
  const unsigned bytes = g.alone ? kMmaAloneBytes : kBytes;
  enqueue(kernel, {.blocks = ctas, .threads = kMmaThreads, .shared_bytes = bytes, .early = true}, stream, g);
}

template <class Element, Masking kMasking>
void launch_mma_tile(int tile, const ArgumentsOf<MmaArguments, kMasking>& g, unsigned ctas, cudaStream_t stream) {
  switch (tile) {
    case 0: return launch_mma_instance<Element, 0, kMasking>(g, ctas, stream);
    case 1: return launch_mma_instance<Element, 1, kMasking>(g, ctas, stream);
    default: return launch_mma_instance<Element, 2, kMasking>(g, ctas, stream);
  }
}

template <class Element, Masking kMasking>
void launch_many_rows_tile(int tile, const ArgumentsOf<MmaArguments, kMasking>& g, unsigned ctas, cudaStream_t stream) {
  const auto launch = [&]<int kIndex>() {
    constexpr Tile kTile = kManyRowsTiles[kIndex];
    if constexpr (kTile.serves(kMasking)) {
      const Grid grid{.blocks = ctas, .threads = static_cast<unsigned>(many_rows_threads(kTile)), .early = true};
      enqueue_with_shared<attention_many_rows<Element, kIndex, kMasking>, many_rows_shared_bytes(kTile)>(grid, stream, g);
    }
  };
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    ((tile == kIndex ? launch.template operator()<kIndex>() : void()), ...);
  }(std::make_integer_sequence<int, static_cast<int>(kManyRowsTiles.size())>{});
}

}  // namespace xgemm::attention
