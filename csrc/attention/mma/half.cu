// fp16: every tile, with and without a mask.
#include "attention/mma/launch.cuh"

namespace xgemm::attention {

void launch_mma_half(bool few, int tile, bool masked, const MmaArguments& g, unsigned ctas, cudaStream_t stream) {
  (masked ? launch_mma_tile<half, Masking::additive> : launch_mma_tile<half, Masking::edges>)(few, tile, g, ctas, stream);
}

}  // namespace xgemm::attention
