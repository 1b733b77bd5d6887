// fp16: every tile and kind of mask.
#include "attention/wgmma/launch.cuh"

namespace xgemm::attention {

void launch_wgmma_half(int tile, Masking masking, const TileArguments& arguments, int ctas, cudaStream_t stream) {
  launch_tile<half>(tile, masking, arguments, ctas, stream);
}

}  // namespace xgemm::attention
