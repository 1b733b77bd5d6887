// The instantiations of wide.cuh.
#include "attention/wgmma/wide.cuh"
#include "device/launch.h"

namespace xgemm::attention {
namespace {

template <class Element>
void launch(bool latent, const TileArguments& g, int ctas, cudaStream_t stream) {
  // Neighbouring tiles that are the heads of one position, and whose keys are the same.
  const bool paired = g.row_tiles == 1 && g.tile_heads.divisor == 1 && g.inner.divisor % 2 == 0 && g.key_steps.inner == 0 &&
                      (latent || g.value_steps.inner == 0);
  const Grid grid{.blocks = static_cast<unsigned>(ctas), .threads = kWideThreads, .cluster = paired ? 2u : 1u, .early = true};
  if (latent)
    enqueue_with_shared<attention_wide<Element, true>, kWideBytes>(grid, stream, g, paired);
  else
    enqueue_with_shared<attention_wide<Element, false>, kWideBytes>(grid, stream, g, paired);
}

}  // namespace

void launch_wide_half(bool latent, const TileArguments& g, int ctas, cudaStream_t stream) {
  launch<half>(latent, g, ctas, stream);
}
void launch_wide_bf16(bool latent, const TileArguments& g, int ctas, cudaStream_t stream) {
  launch<bf16>(latent, g, ctas, stream);
}

}  // namespace xgemm::attention
