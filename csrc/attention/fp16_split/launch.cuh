// Launches one instantiation of kernel.cuh or split.cuh, chosen at run time among the tiles for kParts parts.
#pragma once
#include <utility>

#include "attention/fp16_split/kernel.cuh"
#include "device/launch.h"

namespace xgemm::attention {

template <int kIndex, Masking kMasking>
void launch_instance(const SplitArguments& g, int ctas, cudaStream_t stream) {
  if constexpr (kSplitTiles[kIndex].serves(kMasking)) {
    constexpr auto kernel = attention_fp16_split<kIndex, kMasking>;
    constexpr int kBytes = SplitShared<kIndex>::kBytes;
    allow_shared<kernel, kBytes>();
    enqueue(
        kernel,
        {.blocks = static_cast<unsigned>(ctas), .threads = kSplitTiles[kIndex].threads(), .shared_bytes = kBytes, .early = true},
        stream, g);
  }
}

/// Calls f(std::integral_constant<int, tile>{}).
template <int kParts, class F>
void with_split_tile(int tile, F&& f) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    const auto call = [&](auto index) {
      if constexpr (split_parts(index) == kParts)
        if (index == tile) f(index);
    };
    (call(std::integral_constant<int, kIndex>{}), ...);
  }(std::make_integer_sequence<int, static_cast<int>(kSplitTiles.size())>{});
}

template <int kParts>
void launch_split_tile(int tile, Masking masking, const SplitArguments& g, int ctas, cudaStream_t stream) {
  with_split_tile<kParts>(tile, [&](auto index) {
    switch (masking) {
      case Masking::edges: return launch_instance<index, Masking::edges>(g, ctas, stream);
      case Masking::boolean: return launch_instance<index, Masking::boolean>(g, ctas, stream);
      case Masking::additive: return launch_instance<index, Masking::additive>(g, ctas, stream);
      case Masking::additive_tma:
      case Masking::sequences: return;  // half types only
    }
  });
}

template <int kParts>
void launch_split_operands(int tile, const SplitOperands& g, cudaStream_t stream) {
  with_split_tile<kParts>(tile, [&](auto index) {
    enqueue(split_operands<kSplitTiles[index].head_size, kParts>,
            {.blocks = static_cast<unsigned>(g.query.ctas + g.key.ctas + g.value.ctas), .threads = kSplitThreads, .early = true},
            stream, g);
  });
}

}  // namespace xgemm::attention
