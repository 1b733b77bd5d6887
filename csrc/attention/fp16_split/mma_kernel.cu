// fp32 attention by mma.sync (sm_80 and later): what kernel.cu computes, for GPUs without wgmma, always in two parts. D and Dv up
// to 128.
//
//   CTA        64 rows against one split of the keys, 16 a warp (mma_rows.cuh); both parts of queries, keys and values come to
//              shared memory by cp.async. Values are copied during Q K^T, the next keys during the rest.
//   Order      tiles of kTile.keys from the last to the first; the P V of each is added to the outputs in fp32.
//   Masks      boolean or additive, in one instance; scores are then in natural units.
//   Floor      6 Sq Sk (D + Dv) flop at the rate of mma.sync; Sq Sk exponentials at 16 a cycle and SM.
#include "attention/fp16_split/launch.h"
#include "attention/fp16_split/mma_rows.cuh"
#include "attention/fp16_split/split.cuh"
#include "device/launch.h"

namespace xgemm::attention {

template <int kIndex, Masking kMasking>
__global__ void __launch_bounds__(kMmaThreads, kSplitMmaTiles[kIndex].ctas)
    attention_split_mma(const __grid_constant__ SplitMmaArguments g) {
  using Rows = SplitRows<kIndex, kMasking>;
  constexpr Tile kTile = Rows::kTile;
  constexpr int kKeys = kTile.keys;
  extern __shared__ __align__(128) unsigned char split_parts_memory[];
  unsigned char* const queries = split_parts_memory;
  unsigned char* const key_parts = queries + split_mma_query_bytes(kTile);
  unsigned char* const value_parts = key_parts + split_mma_stage_bytes(kTile);
  ptx::grid_wait();
  ptx::grid_release();
  if (threadIdx.x < kWarpSize) judge_heads(g);

  const RowTile tile(g, static_cast<int>(blockIdx.x));
  KeyWalk<kKeys, kMasking> walk(g, tile);
  using Copies = TileCopies<kKeys, kTile.head_size>;
  const Copies keys(g, g.keys, tile, g.columns), values(g, g.values, tile, g.value_columns);
  const auto copy_keys = [&](int n) {
    keys.issue_whole_or_not(key_parts, n * kKeys, g.sk);
    keys.issue_whole_or_not(key_parts + Rows::kPart, n * kKeys, g.sk, g.key_part);
  };
  copy_queries<kTile.rows(), kTile.head_size, kMmaThreads>(g, g.queries, g.columns, tile, queries);
  copy_queries<kTile.rows(), kTile.head_size, kMmaThreads>(g, g.queries, g.columns, tile, queries + Rows::kQueryPart,
                                                           g.query_part);
  if (walk.valid()) copy_keys(walk.n);
  cp_async_commit();

  Rows rows(g, tile, queries);
  if constexpr (Rows::kHoldsQueries) {
    cp_async_wait<0>();
    __syncthreads();
    rows.load_queries();
  }
#pragma unroll 1
  while (walk.valid()) {
    const int n = walk.n;
    const bool edge = walk.on_edge(), mixed = walk.on_mask();
    walk.next();
    cp_async_wait<0>();
    __syncthreads();  // all threads' copies of the keys have arrived, and all have read the values
    values.issue_whole_or_not(value_parts, n * kKeys, g.sk);
    values.issue_whole_or_not(value_parts + Rows::kPart, n * kKeys, g.sk, g.value_part);
    cp_async_commit();
    float scores[kKeys / 2];
    rows.multiply_keys(scores, n, key_parts);
    rows.soften(scores, n, edge, mixed);
    cp_async_wait<0>();
    __syncthreads();  // here and not before: exponentials among the values' products would take their registers
    if (walk.valid()) copy_keys(walk.n);
    cp_async_commit();
    rows.multiply_values(scores, n, value_parts);
  }
  cp_async_wait<0>();  // without keys, the copies of the queries
  rows.finish();
}

namespace {

template <Masking kMasking>
void launch_tile(int tile, const SplitMmaArguments& g, unsigned ctas, cudaStream_t stream) {
  with_index<kSplitMmaTiles.size()>(tile, [&](auto index) {
    constexpr Tile kTile = kSplitMmaTiles[index];
    if constexpr (kTile.serves(kMasking))
      enqueue_with_shared<attention_split_mma<index, kMasking>, split_mma_shared_bytes(kTile)>(
          {.blocks = ctas, .threads = kMmaThreads, .early = true}, stream, g);
  });
}

}  // namespace

void launch_split_mma(int tile, bool masked, const SplitMmaArguments& g, unsigned ctas, cudaStream_t stream) {
  (masked ? launch_tile<Masking::additive> : launch_tile<Masking::edges>)(tile, g, ctas, stream);
}

}  // namespace xgemm::attention
