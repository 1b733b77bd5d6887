// The instantiations of wide.cuh.
#include "attention/wgmma/wide.cuh"
#include "device/launch.h"

namespace xgemm::attention {
namespace {

template <class Element>
void launch(bool latent, const TileArguments& g, int ctas, cudaStream_t stream) {
  const Grid grid{.blocks = static_cast<unsigned>(ctas), .threads = kWideThreads, .early = true};
  if (latent)
    enqueue_with_shared<attention_wide<Element, true>, kWideBytes>(grid, stream, g);
  else
    enqueue_with_shared<attention_wide<Element, false>, kWideBytes>(grid, stream, g);
}

}  // namespace

void launch_wide_half(bool latent, const TileArguments& g, int ctas, cudaStream_t stream) {
  launch<half>(latent, g, ctas, stream);
}
void launch_wide_bf16(bool latent, const TileArguments& g, int ctas, cudaStream_t stream) {
  launch<bf16>(latent, g, ctas, stream);
}

}  // namespace xgemm::attention
