// Launches one instantiation of kernel.cuh or many_rows.cuh, chosen at run time.
#pragma once
#include <algorithm>

#include "attention/mma/kernel.cuh"
#include "attention/mma/launch.h"
#include "attention/mma/many_rows.cuh"
#include "device/launch.h"

namespace xgemm::attention {

template <class Element, Masking kMasking>
void launch_few_rows_tile(int tile, const ArgumentsOf<MmaArguments, kMasking>& g, unsigned ctas, cudaStream_t stream) {
  with_index<kMmaTiles.size()>(tile, [&](auto index) {
    constexpr auto kernel = attention_mma<Element, index, kMasking>;
    constexpr int kBytes = mma_shared_bytes(kMmaTiles[index], has_mask(kMasking));
    static_assert(kBytes < kMmaAloneBytes);
    once_a_device<kernel>([](int device) {
      int most = 0;
      return cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess &&
             cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, std::min(most, kMmaAloneBytes)) ==
                 cudaSuccess;
    });
    const unsigned bytes = g.alone ? kMmaAloneBytes : kBytes;
    enqueue(kernel, {.blocks = ctas, .threads = kMmaThreads, .shared_bytes = bytes, .early = true}, stream, g);
  });
}

template <class Element, Masking kMasking>
void launch_many_rows_tile(int tile, const ArgumentsOf<MmaArguments, kMasking>& g, unsigned ctas, cudaStream_t stream) {
  with_index<kManyRowsTiles.size()>(tile, [&](auto index) {
    constexpr Tile kTile = kManyRowsTiles[index];
    if constexpr (kTile.serves(kMasking)) {
      const Grid grid{.blocks = ctas, .threads = static_cast<unsigned>(many_rows_threads(kTile)), .early = true};
      enqueue_with_shared<attention_many_rows<Element, index, kMasking>, many_rows_shared_bytes(kTile)>(grid, stream, g);
    }
  });
}

template <class Element, Masking kMasking>
void launch_mma_tile(bool few, int tile, const ArgumentsOf<MmaArguments, kMasking>& g, unsigned ctas, cudaStream_t stream) {
  (few ? launch_few_rows_tile<Element, kMasking> : launch_many_rows_tile<Element, kMasking>)(tile, g, ctas, stream);
}

template <class Element>
void launch_mma(bool few, int tile, bool masked, const MmaArguments& g, unsigned ctas, cudaStream_t stream) {
  (masked ? launch_mma_tile<Element, Masking::additive> : launch_mma_tile<Element, Masking::edges>)(few, tile, g, ctas, stream);
}

template <class Element>
void launch_mma_sequences(bool few, int tile, const WithSequences<MmaArguments>& g, unsigned ctas, cudaStream_t stream) {
  launch_mma_tile<Element, Masking::sequences>(few, tile, g, ctas, stream);
}

}  // namespace xgemm::attention
