// The producer: one warp that loads queries, keys and values to shared memory by TMA.
//
// Tiles of keys go from the last to the first, so that masked tiles come first and a tile of rows ends with keys that the next
// one finds in L2. Loads are in the order in which consumers need them: the first keys before the queries, keys one tile ahead
// of values. While the previous tile still uses the only query slot, keys and values are loaded before the queries. A mask's
// slots become free before the keys' slots of the same step, so the producer waits for them first.
#pragma once
#include "attention/tiles/sequences.cuh"
#include "attention/wgmma/shared.cuh"
#include "device/ptx/tma.cuh"

namespace xgemm::attention {

/// Waits as a whole warp: a late lane could otherwise miss the phase that the others have seen end.
template <int kStages>
__device__ __forceinline__ ptx::Barrier* acquire(const Pipeline<kStages>& slots, const PipelineState<kStages>& at) {
  ptx::Barrier* const landed = slots.acquire(at);
  __syncwarp();
  return landed;
}

/// Loads every warpgroup's rows of the mask of a tile of keys.
template <int kIndex, Masking kMasking>
__device__ __forceinline__ void load_mask(const ArgumentsOf<TileArguments, kMasking>& g, const Shared<kIndex, kMasking>& shared,
                                          const TileOf<kMasking>& tile, PipelineState<Shared<kIndex, kMasking>::kMaskSlots>& mask,
                                          int n, bool leads) {
  using S = Shared<kIndex, kMasking>;
  constexpr Tile kTile = S::kTile;
  const auto& steps = g.mask.steps;
  const int head = steps.head != 0 ? tile.head : 0, inner = steps.inner != 0 ? tile.inner : 0,
            outer = steps.outer != 0 ? tile.outer : 0;
#pragma unroll
  for (int warpgroup = 0; warpgroup < kTile.consumers; ++warpgroup) {
    ptx::Barrier* const landed = acquire(shared.mask_slots(warpgroup), mask);
    if (leads) {
      constexpr int kRowBytes = 2 * kTile.mask_columns();
      ptx::barrier_arrive_expect(landed, kTile.mask_blocks() * g.mask.slot_rows * kRowBytes);
      for (int block = 0; block < kTile.mask_blocks(); ++block)
        ptx::tma_load(shared.mask(warpgroup, mask.slot) + block * 64 * kRowBytes, &g.mask_map, landed, n * S::kKeys + 64 * block,
                      head, g.pack.divide(tile.row + 64 * warpgroup), inner, outer);
    }
  }
  mask.advance();
}

/// All lanes walk and wait; one issues.
template <int kIndex, Masking kMasking>
__device__ __forceinline__ void produce(const ArgumentsOf<TileArguments, kMasking>& g, const Shared<kIndex, kMasking>& shared) {
  using S = Shared<kIndex, kMasking>;
  constexpr Tile kTile = S::kTile;
  const bool leads = ptx::elect_one();
  PipelineState<kTile.query_slots> query;
  PipelineState<kTile.stages> key, value;
  PipelineState<S::kMaskSlots> mask;
  PipelineState<kItemSlots> told;
  for (int item = static_cast<int>(blockIdx.x); item < item_count(g);) {
    const TileOf<kMasking> tile(g, item);
    KeyWalk<S::kKeys, kMasking> walk(g, tile);

    // Loads keys or values of tile n.
    const auto load = [&](const auto& slots, auto& state, unsigned char* to, int bytes, int blocks, const CUtensorMap& map,
                          const TileArguments::Steps& steps, int n) {
      ptx::Barrier* const landed = acquire(slots, state);
      if (leads) {
        ptx::barrier_arrive_expect(landed, bytes);
        for (int block = 0; block < blocks; ++block)
          ptx::tma_load(to + state.slot * bytes + block * S::kKeyBlock, &map, landed, 64 * block, tile.first_key() + n * S::kKeys,
                        tile.inner * steps.inner, tile.key_batch() * steps.outer);
      }
      state.advance();
    };
    const auto load_keys = [&](int n) {
      load(shared.key_slots, key, shared.keys, kTile.key_bytes(), S::kHeadBlocks, g.key, g.key_steps, n);
    };
    const auto load_values = [&](int n) {
      load(shared.value_slots, value, shared.values, kTile.value_bytes(), S::kValueBlocks, g.value, g.value_steps, n);
    };

    bool asked = false;
    const auto load_queries = [&] {
      ptx::Barrier* const landed = acquire(shared.query_slots, query);
      if (leads) {
        ptx::barrier_arrive_expect(landed, S::kHeadBlocks * g.tile_rows * Tile::kBlockBytes);
        for (int block = 0; block < S::kHeadBlocks; ++block)
          ptx::tma_load(shared.queries + query.slot * kTile.query_bytes() + block * S::kQueryBlock, &g.query, landed, 64 * block,
                        tile.head, tile.first_position() + g.pack.divide(tile.row), tile.inner * g.query_steps.inner,
                        tile.outer * g.query_steps.outer);
      }
      query.advance();
      asked = true;
    };

    if (walk.valid()) load_keys(walk.n);
    if (__all_sync(kFullWarp, shared.query_slots.free(query))) load_queries();
    for (int tiles = 1; walk.valid(); ++tiles) {
      const int n = walk.n;
      if constexpr (S::kMaskSlots > 0) {
        // A mask slot of this item is free only after the consumers have read the mask in it, for which they need the queries.
        if (!asked && tiles > S::kMaskSlots) load_queries();
        if (walk.on_mask()) load_mask<kIndex>(g, shared, tile, mask, n, leads);
      }
      walk.next();
      // If the query slot is still taken, loads as much as there is room for: then the consumers need the queries to go on.
      if (!asked && tiles == kTile.stages) load_queries();
      if (walk.valid()) load_keys(walk.n);
      load_values(n);
    }
    if (!asked) load_queries();
    item = fetch_item(g, item_count(g));
    ptx::Barrier* const ready = acquire(shared.item_slots, told);
    if (leads) {
      shared.items[told.slot] = item;
      ptx::barrier_arrive(ready);
    }
    told.advance();
  }
}

}  // namespace xgemm::attention
