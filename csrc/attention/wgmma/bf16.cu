// bf16: every tile and kind of mask.
#include "attention/wgmma/launch.cuh"

namespace xgemm::attention {

void launch_wgmma_bf16(int tile, Masking masking, const TileArguments& arguments, int ctas, cudaStream_t stream) {
  launch_tile<bf16>(tile, masking, arguments, ctas, stream);
}

}  // namespace xgemm::attention
