// The mask's classifier, for the rows and keys of each tile.
#include <algorithm>
#include <utility>

#include "attention/fp16_split/tile.h"
#include "attention/mma/tile.h"
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

/// fp32's tiles (fp16_split) and those of mma.sync use this classifier, too, compiled for the table of wgmma.
constexpr bool is_compiled(const Tile& tile) {
  const auto same = [&](const Tile& t) {
    return t.rows() == tile.rows() && t.keys == tile.keys && (t.serves(Masking::boolean) || t.serves(Masking::additive));
  };
  return std::ranges::any_of(kWgmmaTiles, same);
}
constexpr bool is_served(const Tile& t) { return is_compiled(t) || !(t.serves(Masking::boolean) || t.serves(Masking::additive)); }
static_assert(std::ranges::all_of(kSplitTiles, is_served) && std::ranges::all_of(kManyRowsTiles, is_served));

}  // namespace

void launch_classify(int rows, int keys, const MaskTilesArguments& arguments, unsigned ctas, cudaStream_t stream) {
  classify<kWgmmaTiles>(rows, keys, arguments, ctas, stream);
}

}  // namespace xgemm::attention
