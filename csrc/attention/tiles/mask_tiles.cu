// The mask's classifier, for the rows and keys of each tile.
#include <algorithm>
#include <utility>

#include "attention/fp16_split/tile.h"
#include "attention/tiles/instances.h"
#include "attention/tiles/mask_tiles.cuh"
#include "attention/wgmma/tiles.h"

namespace xgemm::attention {
namespace {

/// False if no tile of kTiles that serves masks has so many rows and keys.
template <const auto& kTiles>
bool classify(int rows, int keys, const MaskTilesArguments& arguments, unsigned ctas, cudaStream_t stream) {
  const auto launch = [&]<std::size_t kIndex>(std::integral_constant<std::size_t, kIndex>) {
    constexpr Tile kTile = kTiles[kIndex];
    if constexpr (kTile.serves(Masking::boolean) || kTile.serves(Masking::additive)) {
      if (kTile.rows() != rows || kTile.keys != keys) return false;
      constexpr auto kernel = classify_mask<kTile.rows(), kTile.keys>;
      kernel<<<ctas, 2 * kTile.rows(), 0, stream>>>(arguments);
      return true;
    }
    return false;
  };
  return [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    return (... || launch(std::integral_constant<std::size_t, kIndex>{}));
  }(std::make_index_sequence<kTiles.size()>{});
}

/// fp32's tiles (fp16_split) use this classifier, too, compiled for the tables above.
constexpr bool is_compiled(const Tile& tile) {
  const auto same = [&](const Tile& t) {
    return t.rows() == tile.rows() && t.keys == tile.keys && (t.serves(Masking::boolean) || t.serves(Masking::additive));
  };
  return std::ranges::any_of(kWgmmaTiles, same);
}
static_assert(std::ranges::all_of(kSplitTiles, [](const Tile& t) {
  return is_compiled(t) || !(t.serves(Masking::boolean) || t.serves(Masking::additive));
}));

}  // namespace

void launch_classify(int rows, int keys, const MaskTilesArguments& arguments, unsigned ctas, cudaStream_t stream) {
  classify<kWgmmaTiles>(rows, keys, arguments, ctas, stream);
}

}  // namespace xgemm::attention
