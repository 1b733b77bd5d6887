// Launches one instantiation of kernel.cuh, chosen at run time.
#pragma once
#include "attention/wgmma/kernel.cuh"
#include "attention/wgmma/launch.h"
#include "device/launch.h"

namespace xgemm::attention {

template <class Element, Masking kMasking>
void launch_tile(int tile, const ArgumentsOf<TileArguments, kMasking>& g, int ctas, cudaStream_t stream) {
  with_index<kWgmmaTiles.size()>(tile, [&](auto index) {
    constexpr Tile kTile = kWgmmaTiles[index];
    if constexpr (kTile.serves(kMasking)) {
      const Grid grid{.blocks = static_cast<unsigned>(ctas), .threads = kTile.threads(), .early = true};
      enqueue_with_shared<attention_wgmma<Element, index, kMasking>, kTile.shared_bytes(kMasking)>(grid, stream, g);
    }
  });
}

template <class Element>
void launch_wgmma(int tile, Masking masking, const TileArguments& g, int ctas, cudaStream_t stream) {
  switch (masking) {
    case Masking::edges: return launch_tile<Element, Masking::edges>(tile, g, ctas, stream);
    case Masking::boolean: return launch_tile<Element, Masking::boolean>(tile, g, ctas, stream);
    case Masking::additive: return launch_tile<Element, Masking::additive>(tile, g, ctas, stream);
    case Masking::additive_tma: return launch_tile<Element, Masking::additive_tma>(tile, g, ctas, stream);
    case Masking::sequences: return;  // other arguments
  }
}

template <class Element>
void launch_wgmma_sequences(int tile, const WithSequences<TileArguments>& g, int ctas, cudaStream_t stream) {
  launch_tile<Element, Masking::sequences>(tile, g, ctas, stream);
}

}  // namespace xgemm::attention
