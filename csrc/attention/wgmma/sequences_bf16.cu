// bf16: the tiles for sequences of different lengths.
#include "attention/wgmma/launch.cuh"

namespace xgemm::attention {

void launch_wgmma_sequences_bf16(int tile, const WithSequences<TileArguments>& arguments, int ctas, cudaStream_t stream) {
  launch_tile<bf16, Masking::sequences>(tile, arguments, ctas, stream);
}

}  // namespace xgemm::attention
