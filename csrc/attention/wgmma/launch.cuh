// Launches one instantiation of kernel.cuh, chosen at run time.
#pragma once
#include <utility>

#include "attention/wgmma/kernel.cuh"
#include "device/launch.h"

namespace xgemm::attention {

template <class Element, int kIndex, Masking kMasking>
void launch_instance(const ArgumentsOf<TileArguments, kMasking>& g, int ctas, cudaStream_t stream) {
  constexpr Tile kTile = kWgmmaTiles[kIndex];
  if constexpr (kTile.serves(kMasking)) {
    constexpr auto kernel = attention_wgmma<Element, kIndex, kMasking>;
    constexpr int kBytes = kTile.shared_bytes(kMasking);
    allow_shared<kernel, kBytes>();
    enqueue(kernel, {.blocks = static_cast<unsigned>(ctas), .threads = kTile.threads(), .shared_bytes = kBytes, .early = true},
            stream, g);
  }
}

/// Calls f(std::integral_constant<int, tile>{}).
template <class F>
void with_tile(int tile, F&& f) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    ((tile == kIndex ? f(std::integral_constant<int, kIndex>{}) : void()), ...);
  }(std::make_integer_sequence<int, static_cast<int>(kWgmmaTiles.size())>{});
}

template <class Element>
void launch_tile(int tile, Masking masking, const TileArguments& g, int ctas, cudaStream_t stream) {
  with_tile(tile, [&](auto index) {
    switch (masking) {
      case Masking::edges: return launch_instance<Element, index, Masking::edges>(g, ctas, stream);
      case Masking::boolean: return launch_instance<Element, index, Masking::boolean>(g, ctas, stream);
      case Masking::additive: return launch_instance<Element, index, Masking::additive>(g, ctas, stream);
      case Masking::additive_tma: return launch_instance<Element, index, Masking::additive_tma>(g, ctas, stream);
      case Masking::sequences: return;  // other arguments
    }
  });
}

}  // namespace xgemm::attention
