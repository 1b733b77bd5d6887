// fp16: every tile.
#include "attention/wgmma/instances.h"
#include "attention/wgmma/launch.cuh"

namespace xgemm::attention {

void launch_wgmma_half(int tile, const WgmmaArguments& arguments, int ctas, cudaStream_t stream) {
  launch_tile<half>(tile, arguments, ctas, stream);
}

}  // namespace xgemm::attention
