// fp16: every tile, for sequences of different lengths.
#include "attention/mma/launch.cuh"

namespace xgemm::attention {

void launch_mma_sequences_half(bool few, int tile, const WithSequences<MmaArguments>& g, unsigned ctas, cudaStream_t stream) {
  launch_mma_tile<half, Masking::sequences>(few, tile, g, ctas, stream);
}

}  // namespace xgemm::attention
