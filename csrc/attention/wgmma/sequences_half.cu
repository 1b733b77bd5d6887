// fp16: the tiles for sequences of different lengths.
#include "attention/wgmma/instances.h"
#include "attention/wgmma/launch.cuh"

namespace xgemm::attention {

void launch_wgmma_sequences_half(int tile, const WithSequences<TileArguments>& arguments, int ctas, cudaStream_t stream) {
  with_tile(tile, [&](auto index) { launch_instance<half, index, Masking::sequences>(arguments, ctas, stream); });
}

}  // namespace xgemm::attention
