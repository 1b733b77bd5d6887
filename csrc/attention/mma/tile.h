// The tiles of the mma.sync kernels, for few rows (kernel.cuh) and for many (many_rows.cuh), in the terms of tiles/tile.h: for
// half and bf16, with and without a mask, one instantiation each.
#pragma once
#include <array>

#include "attention/tiles/tile.h"

namespace xgemm::attention {

inline constexpr int kMmaWarps = 4, kMmaThreads = 32 * kMmaWarps;
inline constexpr int kMmaMaskTiles = 32;  ///< most tiles of keys of a split with a mask: bits of a word
inline constexpr int kMmaUnitKeys = 16;   ///< keys of one step of a warp's online softmax

/// 32 KB of keys and values a stage. Two CTAs per SM have 128 KB in flight; 40 KB reach 4.8 TB/s.
constexpr Tile few_rows_tile(int head_size) {
  return {.head_size = head_size,
          .consumers = 1,
          .keys = 8192 / head_size,
          .query_slots = 0,
          .stages = 3,
          .ctas = 2,
          .sequences = true};
}
inline constexpr std::array kMmaTiles = {few_rows_tile(64), few_rows_tile(128), few_rows_tile(256)};

constexpr int mma_stage_bytes(const Tile& tile) { return tile.key_bytes() + tile.value_bytes(); }
/// Queries are in shared memory if registers cannot hold them beside the outputs and a mask.
constexpr int mma_query_bytes(const Tile& tile, bool masked) {
  return tile.head_size <= 128 || !masked ? 0 : kMmaRows * 2 * tile.head_size;
}
/// The warps' results, which the CTA merges.
constexpr int mma_result_bytes(const Tile& tile) { return 4 * kMmaWarps * kMmaRows * tile.value_size; }
constexpr int mma_shared_bytes(const Tile& tile, bool masked) {
  return tile.stages * mma_stage_bytes(tile) + mma_query_bytes(tile, masked);
}
/// At least the __shared__ variables: the warps' maxima and sums, a boolean mask's bits, its effects.
constexpr int mma_static_bytes(const Tile& tile, bool masked) {
  return 8 * kMmaWarps * kMmaRows + (masked ? 4 * kMmaRows * (kMmaMaskTiles * tile.keys / 32 + 1) + 128 : 0);
}
/// What a CTA asks for to be alone on an SM that would hold two.
inline constexpr int kMmaAloneBytes = Tile::kSharedBytes / 2 + 1;

/// Many rows. `stages`: buffers of shared memory, each for a tile of keys or of values: 2, or 4 if both of two tiles fit.
/// `query_slots`: 0 if registers hold the queries. `row_blocks` share each fragment of keys and values, which ldmatrix would else
/// load at more than shared memory's rate; the largest heads leave registers for one. At most 99 KB, but for the widest keys.
constexpr Tile many_rows_tile(int head_size, int consumers, int row_blocks, Serving serving, int ctas = 2, int value_size = 0) {
  const bool small = head_size <= 64;
  return {.head_size = head_size,
          .value_size = value_size == 0 ? head_size : value_size,
          .consumers = consumers,
          .keys = 64,
          .query_slots = small ? 0 : 1,
          .stages = small ? 4 : 2,
          .ctas = ctas,
          .serving = serving,
          .sequences = serving != Serving::masked && head_size <= 256,
          .row_blocks = row_blocks};
}
inline constexpr std::array kManyRowsTiles = {
    many_rows_tile(64, 2, 2, Serving::any),          many_rows_tile(96, 2, 2, Serving::unmasked),
    many_rows_tile(128, 2, 2, Serving::unmasked),    many_rows_tile(128, 2, 1, Serving::masked, 1),  // a mask takes registers
    many_rows_tile(192, 1, 1, Serving::unmasked),    many_rows_tile(256, 1, 1, Serving::any),
    many_rows_tile(576, 1, 1, Serving::any, 1, 256),  // 216 KB
};

constexpr int many_rows_threads(const Tile& tile) { return 32 * tile.rows() / (16 * tile.row_blocks); }
constexpr int many_rows_query_bytes(const Tile& tile) { return tile.rows() * 2 * tile.head_size; }
constexpr int many_rows_stage_bytes(const Tile& tile) {
  return tile.keys * 2 * (tile.head_size > tile.value_size ? tile.head_size : tile.value_size);
}
constexpr int many_rows_shared_bytes(const Tile& tile) {
  return many_rows_query_bytes(tile) + tile.stages * many_rows_stage_bytes(tile);
}

}  // namespace xgemm::attention
