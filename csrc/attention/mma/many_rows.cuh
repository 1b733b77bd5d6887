// Attention of many rows by mma.sync (sm_80 and later), half or bf16: FlashAttention-2's schedule (Dao 2023).
//
// Computes what kernel.cuh does, with its operands, for any number of rows.
//   CTA        one tile of rows against one split of the keys; each warp 16 or 32 rows (many_rows_warp.cuh). Queries, and keys
//              and values a tile at a time, come to shared memory by cp.async (copies.cuh) while others are computed.
//   Loop       four stages: keys and values of the next tile are copied during a step; a barrier a step. Two: values are copied
//              during Q K^T, the next keys during the rest; two barriers.
//   Order      a row's sums are added in an order that depends on Sk, D, Dv, dtype, the kind of mask and plan.cpp's splits of
//              the keys, as wgmma/kernel.cuh's.
//   Masks      classified before (tiles/mask_tiles.cuh).
//   Floor      2 Sq Sk (D + Dv) flop at the rate of mma.sync; Sq Sk exponentials at 16 a cycle and SM.
#pragma once
#include "attention/mma/many_rows_warp.cuh"
#include "device/ptx/grid.cuh"

namespace xgemm::attention {

template <class Element, int kIndex, Masking kMasking>
__global__ void __launch_bounds__(many_rows_threads(kManyRowsTiles[kIndex]), kManyRowsTiles[kIndex].ctas)
    attention_many_rows(const __grid_constant__ ArgumentsOf<MmaArguments, kMasking> g) {
  constexpr Tile kTile = kManyRowsTiles[kIndex];
  constexpr int kKeys = kTile.keys, kThreads = many_rows_threads(kTile), kStageBytes = many_rows_stage_bytes(kTile);
  constexpr bool kBoth = kTile.stages == 4;
  static_assert(kBoth || kTile.stages == 2);
  extern __shared__ __align__(128) unsigned char attention_rows[];
  unsigned char* const stages = attention_rows + many_rows_query_bytes(kTile);
  ptx::grid_wait();
  ptx::grid_release();  // now the merge may look at what this kernel reads

  const auto own_tile = TileOf<kMasking>::find(g, static_cast<int>(blockIdx.x));
  if (!own_tile.exists()) return;
  const auto& tile = hold_tile(own_tile);
  const auto& bounds = tile.bounds(g);
  const CopiesOf<kMasking, kKeys, kTile.head_size, kThreads> keys(g, g.keys, tile, g.d);
  const CopiesOf<kMasking, kKeys, kTile.value_size, kThreads> values(g, g.values, tile, g.dv);
  KeyWalk<kKeys, kMasking> walk(g, tile);
  const auto copy_keys = [&](int stage) {
    if (walk.valid()) keys.issue_whole_or_not(stages + stage * kStageBytes, walk.n * kKeys, bounds.sk);
  };
  copy_queries<kTile.rows(), kTile.head_size, kThreads>(g, g.queries, g.d, tile, attention_rows);
  copy_keys(0);
  if (kBoth && walk.valid()) values.issue_whole_or_not(stages + kStageBytes, walk.n * kKeys, bounds.sk);
  cp_async_commit();

  ManyRowsWarp<Element, kIndex, kMasking> warp(g, attention_rows);
  if constexpr (ManyRowsWarp<Element, kIndex, kMasking>::kHoldsQueries) {
    cp_async_wait<0>();
    __syncthreads();
    warp.load_queries();
  }
  int stage = 0;
#pragma unroll 1
  while (walk.valid()) {
    const int n = walk.n;
    const bool edge = walk.on_edge(), mixed = walk.on_mask();
    walk.next();
    const unsigned char* const these = stages + stage * kStageBytes;
    cp_async_wait<0>();
    __syncthreads();  // all threads' copies have arrived, and all have read the stages that are filled next
    if constexpr (kBoth) {
      stage ^= 2;
      copy_keys(stage);
      if (walk.valid()) values.issue_whole_or_not(stages + (stage + 1) * kStageBytes, walk.n * kKeys, bounds.sk);
    } else {
      values.issue_whole_or_not(stages + kStageBytes, n * kKeys, bounds.sk);
    }
    cp_async_commit();
    warp.multiply_keys(these);
    if constexpr (!kBoth) {
      cp_async_wait<0>();
      __syncthreads();
      copy_keys(0);
      cp_async_commit();
    }
    warp.soften(n, edge, mixed);
    warp.multiply_values(these + kStageBytes);
  }
  cp_async_wait<0>();
  __syncthreads();  // no copy of queries overwrites the outputs, which take their place
  warp.finish(attention_rows);
}

}  // namespace xgemm::attention
