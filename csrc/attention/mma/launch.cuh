// Launches one instantiation of kernel.cuh, chosen at run time.
#pragma once
#include "attention/mma/kernel.cuh"
#include "attention/mma/launch.h"
#include "device/launch.h"

namespace xgemm::attention {

template <class Element, int kIndex, Masking kMasking>
void launch_mma_instance(const MmaArguments& g, unsigned ctas, cudaStream_t stream) {
  constexpr auto kernel = attention_mma<Element, kIndex, kMasking>;
  constexpr Tile kTile = kMmaTiles[kIndex];
  constexpr int kAlone = Tile::kSharedBytes / 2 + 1;  // so that no other CTA fits beside it
  constexpr int kBytes = mma_shared_bytes(kTile);
  static_assert(kBytes < kAlone);
  allow_shared<kernel, kAlone>();
  const unsigned bytes = g.alone ? kAlone : kBytes;
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

}  // namespace xgemm::attention
