// The tiles of fp32 attention by fp16 parts (kernel.cuh).
#pragma once
#include "attention/wgmma/tile.h"

namespace xgemm::attention {

/// `stages`: slots of one ring that keys and values share; a slot holds one part, high or low, of a tile of either.
inline constexpr std::array kSplitTiles = {
    WgmmaTile{.head_size = 64, .value_size = 64, .consumers = 2, .keys = 128, .query_slots = 1, .stages = 8},    // 0
    WgmmaTile{.head_size = 128, .value_size = 128, .consumers = 2, .keys = 128, .query_slots = 1, .stages = 5},  // 1
    // 2: half of the keys, or scores, weights and 128 outputs would not fit the registers
    WgmmaTile{.head_size = 256, .value_size = 256, .consumers = 2, .keys = 64, .query_slots = 1, .stages = 3},
};

/// Of a thread: 65536 over all threads at launch, then the producer's go to the consumers.
inline constexpr int kSplitProducerRegisters = 24, kSplitConsumerRegisters = 240;

/// A mask's words do not fit beside 128 outputs.
constexpr bool split_serves(const WgmmaTile& tile, Masking masking) {
  return masking == Masking::edges || tile.value_size <= 128;
}

/// Rows whose parts one CTA of split.cuh makes, for the tile of so many columns: as many as the tile has keys, since values have
/// a scale for each tile of keys and each column.
constexpr int split_block_rows(int columns) { return columns > 128 ? 64 : 128; }
static_assert(kSplitTiles[0].keys == split_block_rows(64) && kSplitTiles[1].keys == split_block_rows(128) &&
              kSplitTiles[2].keys == split_block_rows(256));

}  // namespace xgemm::attention
