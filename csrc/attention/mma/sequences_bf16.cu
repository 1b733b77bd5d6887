// bf16: every tile, for sequences of different lengths.
#include "attention/mma/launch.cuh"

namespace xgemm::attention {

void launch_mma_sequences_bf16(bool few, int tile, const WithSequences<MmaArguments>& g, unsigned ctas, cudaStream_t stream) {
  launch_mma_tile<bf16, Masking::sequences>(few, tile, g, ctas, stream);
}

}  // namespace xgemm::attention
