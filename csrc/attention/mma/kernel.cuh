// Attention of few rows, limited by reading keys and values: mma.sync with tiles of 16 rows (sm_80 and later), half or bf16.
//
// Computes  out = softmax(scale Q K^T + mask) V  and, if asked, the natural log-sum-exp of each row; causal with any shift,
// windows, masks, soft capping, sinks.
//   Operands   as wgmma/kernel.cuh; at most 16 packed rows per key head. D and Dv up to kTile's, zeros beyond; scale > 0.
//   CTA        one split of one key head's keys. Four warps share them, 16 at a time: each has its own maximum, sum and outputs
//              (warp.cuh).
//   Loop       a ring of stages, filled by cp.async (copies.cuh); one barrier per stage.
//   Order      16 keys at a time, by slices (the index of the 16 modulo 4), from the last to the first of a split; slices, then
//              splits (tiles/merge.cuh) are merged in order.
//   Masks      a CTA looks through its split's part first (mask.cuh): tiles of keys that no row sees are not loaded.
//   Floor      K and V once through memory, 2 Sk (D + Dv) bytes per key head.
#pragma once
#include "attention/mma/merge.cuh"
#include "device/ptx/grid.cuh"

namespace xgemm::attention {

template <class Element, int kIndex, Masking kMasking>
__global__ void __launch_bounds__(kMmaThreads, kMmaTiles[kIndex].ctas)
    attention_mma(const __grid_constant__ ArgumentsOf<MmaArguments, kMasking> g) {
  constexpr Tile kTile = kMmaTiles[kIndex];
  constexpr int kKeys = kTile.keys, kStages = kTile.stages, kStageBytes = mma_stage_bytes(kTile);
  extern __shared__ __align__(128) unsigned char attention_ring[];
  ptx::grid_wait();
  ptx::grid_release();  // now the merge may look at what this kernel reads

  const auto own_tile = TileOf<kMasking>::find(g, static_cast<int>(blockIdx.x));
  if (!own_tile.exists()) return;
  const auto& tile = hold_tile(own_tile);
  const auto& bounds = tile.bounds(g);
  const SplitMask<kKeys, kMasking> split_mask(g, tile);
  SplitKeys<kKeys, kMasking> walk(g, tile, split_mask), ahead = walk;
  const CopiesOf<kMasking, kKeys, kTile.head_size> keys(g, g.keys, tile, g.d);
  const CopiesOf<kMasking, kKeys, kTile.value_size> values(g, g.values, tile, g.dv);
  const auto copy = [&](int slot) {
    if (ahead.valid()) {
      unsigned char* const to = attention_ring + slot * kStageBytes;
      issue_both(keys, values, to, to + kTile.key_bytes(), ahead.n * kKeys, bounds.sk);
      ahead.next();
    }
    cp_async_commit();  // an empty group too: the wait counts groups
  };
#pragma unroll 1
  for (int slot = 0; slot < kStages - 1; ++slot) copy(slot);

  WarpRows<Element, kIndex, kMasking> warp(g);
  warp.load_queries(tile, attention_ring + kStages * kStageBytes);
  const int rows[2] = {tile.row + warp.row(0), tile.row + warp.row(1)};
  UnitMask<kKeys, kMasking> mask(g, tile, rows, split_mask);
  int slot = 0, before = kStages - 1;
#pragma unroll 1
  for (; walk.valid(); walk.next()) {
    cp_async_wait<kStages - 2>();
    __syncthreads();  // all threads' copies of this stage have arrived, and all have read the previous one
    copy(before);
    const unsigned char* const stage = attention_ring + slot * kStageBytes;
    warp.attend(walk, mask, stage, stage + kTile.key_bytes());
    before = slot;
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }
  cp_async_wait<0>();
  __syncthreads();  // no thread reads or fills a stage any more
  store_tile<Element, kIndex>(g, warp, tile, attention_ring);
}

}  // namespace xgemm::attention
