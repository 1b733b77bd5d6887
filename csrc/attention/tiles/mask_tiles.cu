// The mask's classifier, for the rows and keys of each tile.
#include <algorithm>

#include "attention/fp16_split/tile.h"
#include "attention/mma/tile.h"
#include "attention/tiles/instances.h"
#include "attention/tiles/mask_tiles.cuh"
#include "attention/wgmma/tiles.h"

namespace xgemm::attention {
namespace {

constexpr bool has_masks(const Tile& t) { return t.serves(Masking::boolean) || t.serves(Masking::additive); }

/// The first of wgmma's tiles with masks that has so many rows and keys.
constexpr auto find_tile(int rows, int keys) {
  return std::ranges::find_if(kWgmmaTiles, [=](const Tile& t) { return has_masks(t) && t.rows() == rows && t.keys == keys; });
}
/// fp32's tiles (fp16_split) and those of mma.sync use this classifier, too, compiled for the table of wgmma.
constexpr bool is_served(const Tile& t) { return !has_masks(t) || find_tile(t.rows(), t.keys) != kWgmmaTiles.end(); }
static_assert(std::ranges::all_of(kSplitTiles, is_served) && std::ranges::all_of(kSplitMmaTiles, is_served) &&
              std::ranges::all_of(kManyRowsTiles, is_served));

}  // namespace

void launch_classify(int rows, int keys, const MaskTilesArguments& arguments, unsigned ctas, cudaStream_t stream) {
  with_index<kWgmmaTiles.size()>(static_cast<int>(find_tile(rows, keys) - kWgmmaTiles.begin()), [&](auto index) {
    constexpr Tile kTile = kWgmmaTiles[index];
    if constexpr (has_masks(kTile)) {
      constexpr auto kernel = classify_mask<kTile.rows(), kTile.keys>;
      kernel<<<ctas, 2 * kTile.rows(), 0, stream>>>(arguments);
    }
  });
}

}  // namespace xgemm::attention
