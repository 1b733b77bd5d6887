// The tiles of fp32 attention by fp16 parts (kernel.cu, mma_kernel.cu).
#pragma once
#include <algorithm>
#include <array>
#include <span>

#include "attention/tiles/tile.h"

namespace xgemm::attention {

/// `stages`: slots of one ring that keys and values share; a slot holds one part, high or low, of a tile of either.
inline constexpr std::array kSplitTiles = {
    // Two parts
    Tile{.head_size = 64, .consumers = 2, .keys = 128, .query_slots = 1, .stages = 8},   // 0
    Tile{.head_size = 128, .consumers = 2, .keys = 128, .query_slots = 1, .stages = 5},  // 1
    // 2: half of the keys; with all, scores, weights and 128 outputs would not fit the registers
    Tile{.head_size = 256, .consumers = 2, .keys = 64, .query_slots = 1, .stages = 3},
    // One part
    // 3, 4: exponentials take as long as products: three warpgroups, except with an additive mask, which takes registers
    Tile{.head_size = 64, .consumers = 3, .keys = 128, .query_slots = 1, .stages = 8, .additive = false},
    Tile{.head_size = 64, .consumers = 2, .keys = 128, .query_slots = 1, .stages = 8, .others = false},
    Tile{.head_size = 128, .consumers = 2, .keys = 128, .query_slots = 1, .stages = 6},  // 5
    Tile{.head_size = 256, .consumers = 2, .keys = 64, .query_slots = 1, .stages = 4},   // 6
};
inline constexpr int kFirstOfOnePart = 3;
constexpr int split_parts(int tile) { return tile < kFirstOfOnePart ? 2 : 1; }
/// The tiles for so many parts.
constexpr std::span<const Tile> split_tiles(int parts) {
  const std::span<const Tile> all(kSplitTiles);
  return parts == 2 ? all.first(kFirstOfOnePart) : all.subspan(kFirstOfOnePart);
}

/// By mma.sync (mma_kernel.cu), two parts. `stages`: of keys, and of values.
constexpr Tile split_mma_tile(int head_size, int keys, Serving serving = Serving::any) {
  return {.head_size = head_size,
          .consumers = 1,
          .keys = keys,
          .query_slots = head_size > 64,  // else registers hold the queries
          .stages = 1,
          .ctas = 2,
          .serving = serving};
}
inline constexpr std::array kSplitMmaTiles = {split_mma_tile(64, 64), split_mma_tile(128, 32, Serving::unmasked),
                                              split_mma_tile(128, 64, Serving::masked)};
/// Of both parts.
constexpr int split_mma_query_bytes(const Tile& tile) { return 4 * tile.rows() * tile.head_size; }
constexpr int split_mma_stage_bytes(const Tile& tile) { return 4 * tile.keys * tile.head_size; }
constexpr int split_mma_shared_bytes(const Tile& tile) { return split_mma_query_bytes(tile) + 2 * split_mma_stage_bytes(tile); }
/// Every GPU of compute capability 8.0 and newer gives a CTA 99 KB.
static_assert(std::ranges::all_of(kSplitMmaTiles, [](const Tile& t) { return split_mma_shared_bytes(t) <= 99 * 1024; }));

/// Rows that one CTA of split.cuh splits, for the tile of so many columns: as many as a tile of kernel.cu has keys, a multiple of
/// those of mma_kernel.cu, since values have one scale per block and column.
constexpr int split_block_rows(int columns) { return columns > 128 ? 64 : 128; }
static_assert(std::ranges::all_of(kSplitTiles, [](const Tile& t) { return t.keys == split_block_rows(t.head_size); }));
static_assert(std::ranges::all_of(kSplitMmaTiles, [](const Tile& t) { return split_block_rows(t.head_size) % t.keys == 0; }));

}  // namespace xgemm::attention
