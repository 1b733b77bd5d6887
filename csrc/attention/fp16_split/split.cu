// The launch of split.cuh, for kernel.cu and mma_kernel.cu.
#include "attention/fp16_split/launch.h"
#include "attention/fp16_split/split.cuh"
#include "device/launch.h"

namespace xgemm::attention {

void launch_split_operands(int tile, const SplitOperands& g, cudaStream_t stream) {
  with_index<kSplitTiles.size()>(tile, [&](auto index) {
    const auto ctas = static_cast<unsigned>(g.query.ctas + g.key.ctas + g.value.ctas);
    enqueue(split_operands<kSplitTiles[index].head_size, split_parts(index)>,
            {.blocks = ctas, .threads = kSplitThreads, .early = true}, stream, g);
  });
}

}  // namespace xgemm::attention
