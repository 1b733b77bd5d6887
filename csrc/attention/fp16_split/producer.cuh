// The producer: one warp that loads the parts of queries, keys and values, and the scales of keys and values, to shared memory.
#pragma once
#include "attention/fp16_split/arguments.h"
#include "attention/fp16_split/shared.cuh"
#include "attention/wgmma/producer.cuh"

namespace xgemm::attention {

/// All lanes walk and wait; one issues. The ring is in order of use: the parts of a tile's keys, high first, then of its
/// values.
template <int kIndex, Masking kMasking>
__device__ __forceinline__ void produce_parts(const SplitArguments& g, const SplitShared<kIndex>& shared) {
  using S = SplitShared<kIndex>;
  constexpr Tile kTile = S::kTile;
  const bool leads = ptx::elect_one();
  PipelineState<1> query;
  PipelineState<kTile.stages> slot;
  for (SplitItems item(g); item.valid(); item.next()) {
    const RowTile tile(g, item.index);
    KeyWalk<S::kKeys, kMasking> walk(g, tile);
    // Loads one part into the next slot; with the high part, the tile's scales.
    const auto load = [&](const CUtensorMap& map, int blocks, int batch, int part, int n, const std::uint16_t* scales,
                          int count) {
      ptx::Barrier* const landed = acquire(shared.ring, slot);
      if (leads) {
        const int scale_bytes = part == 0 ? 2 * count : 0;
        ptx::barrier_arrive_expect(landed, blocks * S::kKeyBlock + scale_bytes);
        if (part == 0)
          ptx::bulk_load(shared.scales + slot.slot * S::kScales,
                         scales + (static_cast<std::int64_t>(batch) * g.key_blocks + n) * count, scale_bytes, landed);
        for (int block = 0; block < blocks; ++block)
          ptx::tma_load(shared.slot(slot.slot) + block * S::kKeyBlock, &map, landed, 64 * block, n * S::kKeys, batch, part);
      }
      slot.advance();
    };
    const auto load_keys = [&](int n) {
      const int batch = tile.batch_of(g.key_steps);
      for (int part = 0; part < S::kParts; ++part) load(g.key, S::kHeadBlocks, batch, part, n, g.key_scales, S::kKeys);
    };

    if (walk.valid()) load_keys(walk.n);
    ptx::Barrier* const landed = acquire(shared.query_slots, query);
    if (leads) {
      ptx::barrier_arrive_expect(landed, S::kParts * S::kHeadBlocks * g.tile_rows * Tile::kBlockBytes);
      const int batch = tile.batch_of(g.query_steps);
      for (int part = 0; part < S::kParts; ++part)
        for (int block = 0; block < S::kHeadBlocks; ++block)
          ptx::tma_load(shared.queries + part * S::kQueryPart + block * S::kQueryBlock, &g.query, landed, 64 * block, tile.head,
                        g.pack.divide(tile.row), batch, part);
    }
    query.advance();
    while (walk.valid()) {
      const int batch = tile.batch_of(g.value_steps);
      for (int part = 0; part < S::kParts; ++part)
        load(g.value, S::kValueBlocks, batch, part, walk.n, g.value_scales, kTile.value_size);
      walk.next();
      if (walk.valid()) load_keys(walk.n);
    }
  }
}

}  // namespace xgemm::attention
