// The instantiations of latent.cuh.
#include "attention/wgmma/latent.cuh"
#include "device/launch.h"

namespace xgemm::attention {
namespace {

template <class Element>
void launch(const TileArguments& g, int ctas, cudaStream_t stream) {
  const Grid grid{.blocks = static_cast<unsigned>(ctas), .threads = kLatentThreads, .early = true};
  enqueue_with_shared<attention_latent<Element>, kLatentBytes>(grid, stream, g);
}

}  // namespace

void launch_latent_half(const TileArguments& g, int ctas, cudaStream_t stream) { launch<half>(g, ctas, stream); }
void launch_latent_bf16(const TileArguments& g, int ctas, cudaStream_t stream) { launch<bf16>(g, ctas, stream); }

}  // namespace xgemm::attention
