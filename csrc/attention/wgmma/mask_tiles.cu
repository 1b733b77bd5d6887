// The mask's classifier, for the rows and keys of each tile.
#include "attention/wgmma/instances.h"
#include "attention/wgmma/launch.cuh"
#include "attention/wgmma/mask_tiles.cuh"

namespace xgemm::attention {

void launch_classify(int tile, const MaskTilesArguments& arguments, unsigned ctas, cudaStream_t stream) {
  with_tile(tile, [&](auto index) {
    constexpr WgmmaTile kTile = kWgmmaTiles[index];
    if constexpr (kTile.serves(Masking::boolean) || kTile.serves(Masking::additive)) {
      constexpr auto kernel = classify_mask<kTile.rows(), kTile.keys>;
      kernel<<<ctas, 2 * kTile.rows(), 0, stream>>>(arguments);
    }
  });
}

}  // namespace xgemm::attention
