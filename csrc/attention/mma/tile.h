// The tiles of the mma.sync kernel (kernel.cuh), in the terms of tiles/tile.h: one instantiation each for half and bf16.
#pragma once
#include <array>

#include "attention/tiles/tile.h"

namespace xgemm::attention {

inline constexpr int kMmaWarps = 4, kMmaThreads = 32 * kMmaWarps;
inline constexpr int kMmaMaskTiles = 32;  ///< most tiles of keys of a split with a mask: bits of a word
inline constexpr int kMmaUnitKeys = 16;   ///< keys of one step of a warp's online softmax

/// `keys`: of one stage, 32 KB of keys and values. Two CTAs per SM have 128 KB in flight; 40 KB reach 4.8 TB/s.
inline constexpr std::array kMmaTiles = {
    Tile{.head_size = 64, .value_size = 64, .consumers = 1, .keys = 128, .query_slots = 0, .stages = 3, .ctas = 2},
    Tile{.head_size = 128, .value_size = 128, .consumers = 1, .keys = 64, .query_slots = 0, .stages = 3, .ctas = 2},
    Tile{.head_size = 256, .value_size = 256, .consumers = 1, .keys = 32, .query_slots = 0, .stages = 3, .ctas = 2},
};

constexpr int mma_stage_bytes(const Tile& tile) { return tile.key_bytes() + tile.value_bytes(); }
/// Queries are in shared memory if registers cannot hold them beside the outputs.
constexpr int mma_query_bytes(const Tile& tile) { return tile.head_size <= 128 ? 0 : kMmaRows * 2 * tile.head_size; }
/// The warps' results, which the CTA merges.
constexpr int mma_result_bytes(const Tile& tile) { return 4 * kMmaWarps * kMmaRows * tile.value_size; }
/// Can a CTA compute several splits? The results of one are merged in the stage that the next copy will fill.
constexpr bool mma_gathers(const Tile& tile) { return mma_result_bytes(tile) <= mma_stage_bytes(tile); }
constexpr int mma_shared_bytes(const Tile& tile) { return tile.stages * mma_stage_bytes(tile) + mma_query_bytes(tile); }

}  // namespace xgemm::attention
