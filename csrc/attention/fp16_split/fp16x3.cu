// Two parts, three products: every tile and kind of mask.
#include "attention/fp16_split/instances.h"
#include "attention/fp16_split/launch.cuh"

namespace xgemm::attention {

void launch_fp16x3(int tile, Masking masking, const SplitArguments& g, int ctas, cudaStream_t stream) {
  launch_split_tile<2>(tile, masking, g, ctas, stream);
}

void split_fp16x3(int tile, const SplitOperands& g, cudaStream_t stream) { launch_split_operands<2>(tile, g, stream); }

}  // namespace xgemm::attention
