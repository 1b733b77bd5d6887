// The tiles of fp32 attention by fp16 parts (kernel.cuh).
#pragma once
#include "attention/wgmma/tile.h"

namespace xgemm::attention {

/// `stages`: slots of one ring that keys and values share; a slot holds one part, high or low, of a tile of either.
inline constexpr std::array kSplitTiles = {
    WgmmaTile{.head_size = 64, .value_size = 64, .consumers = 2, .keys = 128, .query_slots = 1, .stages = 8},    // 0
    WgmmaTile{.head_size = 128, .value_size = 128, .consumers = 2, .keys = 128, .query_slots = 1, .stages = 5},  // 1
};

/// Rows whose parts one CTA of split.cuh makes; values have a scale for each so many keys and each column: a tile's.
inline constexpr int kSplitRows = 128;
static_assert(kSplitTiles[0].keys == kSplitRows && kSplitTiles[1].keys == kSplitRows);

}  // namespace xgemm::attention
