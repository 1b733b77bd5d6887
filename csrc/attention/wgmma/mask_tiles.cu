// The mask's classifier, for the rows and keys of each tile.
#include <algorithm>

#include "attention/wgmma/instances.h"
#include "attention/wgmma/launch.cuh"
#include "attention/wgmma/mask_tiles.cuh"

namespace xgemm::attention {

void launch_classify(int rows, int keys, const MaskTilesArguments& arguments, unsigned ctas, cudaStream_t stream) {
  constexpr auto masked = [](const WgmmaTile& t) { return t.serves(Masking::boolean) || t.serves(Masking::additive); };
  const auto tile = std::find_if(kWgmmaTiles.begin(), kWgmmaTiles.end(),
                                 [&](const WgmmaTile& t) { return masked(t) && t.rows() == rows && t.keys == keys; });
  with_tile(static_cast<int>(tile - kWgmmaTiles.begin()), [&](auto index) {
    constexpr WgmmaTile kTile = kWgmmaTiles[index];
    if constexpr (masked(kTile)) {
      constexpr auto kernel = classify_mask<kTile.rows(), kTile.keys>;
      kernel<<<ctas, 2 * kTile.rows(), 0, stream>>>(arguments);
    }
  });
}

}  // namespace xgemm::attention
