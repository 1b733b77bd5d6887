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
void launch_mma_instance(const MmaArguments& g, unsigned ctas, cudaStream_t stream) {
  constexpr auto kernel = attention_mma<Element, kIndex, kMasking>;
  constexpr Tile kTile = kMmaTiles[kIndex];
  constexpr int kBytes = mma_shared_bytes(kTile, kMasking != Masking::edges);
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

template <class Element>
void launch_mma_tile(int tile, bool masked, const MmaArguments& g, unsigned ctas, cudaStream_t stream) {
  const auto launch = [&]<int kIndex>(std::integral_constant<int, kIndex>) {
    if (masked)
      launch_mma_instance<Element, kIndex, Masking::additive>(g, ctas, stream);
    else
      launch_mma_instance<Element, kIndex, Masking::edges>(g, ctas, stream);
  };
  switch (tile) {
    case 0: return launch(std::integral_constant<int, 0>{});
    case 1: return launch(std::integral_constant<int, 1>{});
    default: return launch(std::integral_constant<int, 2>{});
  }
}

template <class Element>
void launch_many_rows_tile(int tile, bool masked, const MmaArguments& g, unsigned ctas, cudaStream_t stream) {
  const auto launch = [&]<int kIndex, Masking kMasking>() {
    constexpr Tile kTile = kManyRowsTiles[kIndex];
    if constexpr (kTile.serves(kMasking)) {
      const Grid grid{.blocks = ctas, .threads = static_cast<unsigned>(many_rows_threads(kTile)), .early = true};
      enqueue_with_shared<attention_many_rows<Element, kIndex, kMasking>, many_rows_shared_bytes(kTile)>(grid, stream, g);
    }
  };
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    ((tile != kIndex ? void()
      : masked       ? launch.template operator()<kIndex, Masking::additive>()
                     : launch.template operator()<kIndex, Masking::edges>()),
     ...);
  }(std::make_integer_sequence<int, static_cast<int>(kManyRowsTiles.size())>{});
}

}  // namespace xgemm::attention
