// Launches one instantiation of kernel.cuh, chosen at run time.
#pragma once
#include <utility>

#include "attention/wgmma/kernel.cuh"
#include "device/launch.h"

namespace xgemm::attention {

template <class Element, int kIndex>
void launch_instance(const WgmmaArguments& g, int ctas, cudaStream_t stream) {
  constexpr WgmmaTile kTile = kWgmmaTiles[kIndex];
  constexpr auto kernel = attention_wgmma<Element, kIndex>;
  allow_shared<kernel, kTile.shared_bytes()>();
  enqueue(
      kernel,
      {.blocks = static_cast<unsigned>(ctas), .threads = kTile.threads(), .shared_bytes = kTile.shared_bytes(), .early = true},
      stream, g);
}

template <class Element>
void launch_tile(int tile, const WgmmaArguments& g, int ctas, cudaStream_t stream) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    ((tile == kIndex ? launch_instance<Element, kIndex>(g, ctas, stream) : void()), ...);
  }(std::make_integer_sequence<int, static_cast<int>(kWgmmaTiles.size())>{});
}

}  // namespace xgemm::attention
