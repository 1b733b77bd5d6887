#include <utility>

#include "attention/fp16_split/instances.h"
#include "attention/fp16_split/kernel.cuh"
#include "device/launch.h"

namespace xgemm::attention {
namespace {

template <int kIndex, Masking kMasking>
void launch_instance(const SplitArguments& g, int ctas, cudaStream_t stream) {
  if constexpr (split_serves(kSplitTiles[kIndex], kMasking)) {
    constexpr auto kernel = attention_fp16_split<kIndex, kMasking>;
    constexpr int kBytes = SplitShared<kIndex>::kBytes;
    allow_shared<kernel, kBytes>();
    enqueue(
        kernel,
        {.blocks = static_cast<unsigned>(ctas), .threads = kSplitTiles[kIndex].threads(), .shared_bytes = kBytes, .early = true},
        stream, g);
  }
}

template <int kIndex>
void launch_tile(Masking masking, const SplitArguments& g, int ctas, cudaStream_t stream) {
  switch (masking) {
    case Masking::edges: return launch_instance<kIndex, Masking::edges>(g, ctas, stream);
    case Masking::boolean: return launch_instance<kIndex, Masking::boolean>(g, ctas, stream);
    case Masking::additive: return launch_instance<kIndex, Masking::additive>(g, ctas, stream);
  }
}

}  // namespace

void launch_fp16_split(int tile, Masking masking, const SplitArguments& g, int ctas, cudaStream_t stream) {
  switch (tile) {
    case 0: return launch_tile<0>(masking, g, ctas, stream);
    case 1: return launch_tile<1>(masking, g, ctas, stream);
    default: return launch_tile<2>(masking, g, ctas, stream);
  }
}

void launch_split_operands(int tile, const SplitOperands& g, cudaStream_t stream) {
  const auto kernel = tile == 0   ? split_operands<kSplitTiles[0].head_size>
                      : tile == 1 ? split_operands<kSplitTiles[1].head_size>
                                  : split_operands<kSplitTiles[2].head_size>;
  enqueue(kernel,
          {.blocks = static_cast<unsigned>(g.query.ctas + g.key.ctas + g.value.ctas), .threads = kSplitThreads, .early = true},
          stream, g);
}

}  // namespace xgemm::attention
