// fp16: the tiles for sequences of different lengths.
#include "attention/wgmma/launch.cuh"

namespace xgemm::attention {

void launch_wgmma_sequences_half(int tile, const WithSequences<TileArguments>& arguments, int ctas, cudaStream_t stream) {
  launch_tile<half, Masking::sequences>(tile, arguments, ctas, stream);
}

}  // namespace xgemm::attention
