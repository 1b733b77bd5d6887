// Attention of few rows in fp32 on CUDA cores, limited by reading keys and values: decoding (sm_80 and later).
//
// Computes  out = softmax(scale Q K^T + mask) V  and, if asked, the natural log-sum-exp of each row; causal with any shift,
// windows, masks, soft capping, sinks. Arithmetic in fp32, exp to 2 ulp (simt/softmax.cuh).
//   Operands   query (batch, group, Sq, D), key (batch, Sk, D), value (batch, Sk, Dv) and the mask (bool or fp32) with any
//              strides: 16 bytes at a time if rows are aligned, else single elements. Output and lse contiguous. D and Dv up to
//              kTile's.
//   CTA        one tile of packed rows, one split of the keys. Each of four warps takes every fourth step of kTile.keys() keys
//              and keeps its own maximum, sum and outputs (warp.cuh). Grid in x: tiles of rows, batches, splits.
//   Loop       a warp has one slot for keys and one for values, and refills a slot by cp.async as soon as it has read it
//              (copies.cuh). No CTA barrier.
//   Order      a row's sums are added in an order that depends on Sk, D and Dv alone: steps, warps, splits (merge.cuh), in
//              order.
//   Floor      K and V once through memory, 4 Sk (D + Dv) bytes per key head; 2 Sk (D + Dv) operations per row.
#include "attention/decode/copies.cuh"
#include "attention/decode/launch.h"
#include "attention/decode/merge.cuh"
#include "device/launch.h"

namespace xgemm::attention {

/// kDecodeTiles[kIndex] (nvcc does not compile a kernel whose template argument is a struct).
template <int kIndex>
__global__ void __launch_bounds__(kDecodeThreads, kDecodeTiles[kIndex].ctas)
    attention_decode(const __grid_constant__ DecodeArguments a) {
  constexpr DecodeTile kTile = kDecodeTiles[kIndex];
  constexpr int kKeys = kTile.keys();
  extern __shared__ __align__(128) unsigned char attention_decode_memory[];
  const DecodeMemory<kTile> memory(attention_decode_memory);
  const int thread = static_cast<int>(threadIdx.x), index = warp_uniform(thread / 32);
  ptx::grid_release();

  std::uint32_t rest = blockIdx.x;
  const int first_row = static_cast<int>(rest % a.row_tiles) * kTile.rows;
  rest /= a.row_tiles;
  const std::uint32_t batch = rest % a.batches;
  const int split = static_cast<int>(rest / a.batches);
  const int row_limit = min(kTile.rows, a.group * a.sq - first_row);
  const int first_position = first_row / a.group, last_position = (first_row + row_limit - 1) / a.group;
  const int split_begin = (split + a.first_split) * a.split_keys;
  const int begin = max(keys_begin(a, first_position), split_begin);
  const int end = min(keys_end(a, last_position), split_begin + a.split_keys);
  if (a.splits > 1 && begin >= end) return;  // the merge does not read this split
  std::int64_t query_at = 0, key_at = 0, value_at = 0, mask_at = 0;
  add_batch(a, batch, query_at, key_at, value_at, mask_at);
  const StepCopies<kTile, true> keys(a.key, key_at, a.d);
  const StepCopies<kTile, false> values(a.value, value_at, a.dv);
  float* const key_slot = memory.slots + index * (kTile.slots_bytes() / kDecodeWarps / 4);
  float* const value_slot = key_slot + kDecodeSlotBytes / 4;
  int first = begin / kKeys;  // the warp's first step, in steps, then in keys
  first = (first + ((index - first) & (kDecodeWarps - 1))) * kKeys;

  ptx::grid_wait();
  const auto copy = [&](const auto& copies, float* slot, int from) {
    if (from < end) copies.issue(slot, from, end);
    cp_async_commit();  // an empty group too: the wait counts groups
  };
  copy(keys, key_slot, first);
  copy(values, value_slot, first);

  if (thread < kTile.rows) {
    DecodeRow& row = memory.rows[thread];
    row = {.mask = 0, .out = -1, .begin = 0, .end = 0, .query = 0};
    if (thread < row_limit) {
      const Row place(a, batch, first_row + thread);
      row = {place.mask, place.out, keys_begin(a, place.position), keys_end(a, place.position), place.query};
    }
  }
  __syncthreads();
#pragma unroll 4
  for (int i = thread; i < kTile.rows * kTile.head_size; i += kDecodeThreads) {
    const int row = i / kTile.head_size, column = i % kTile.head_size;
    const bool exists = row < row_limit && column < a.d;
    memory.queries[i] =
        exists ? static_cast<const float*>(a.query.data)[query_at + memory.rows[row].query + column * a.query.column] : 0.f;
  }
  __syncthreads();

  WarpRows<kTile> warp(a, memory);
  // All rows see all keys of the steps in between.
  const int inner_begin = keys_begin(a, last_position), inner_end = keys_end(a, first_position);
#pragma unroll 1
  for (; first < end; first += kDecodeWarps * kKeys) {
    const int next = first + kDecodeWarps * kKeys;
    cp_async_wait<1>();
    __syncwarp();  // the warp's copies of these keys have arrived
    typename WarpRows<kTile>::Scores scores;
    warp.multiply_keys(scores, key_slot);
    __syncwarp();  // the warp has read them
    copy(keys, key_slot, next);
    warp.finish_scores(scores, first, mask_at, first < inner_begin || first + kKeys > inner_end);
    warp.exponentiate(scores);
    cp_async_wait<1>();
    __syncwarp();  // values and weights have arrived
    warp.multiply_values(value_slot);
    __syncwarp();
    copy(values, value_slot, next);
  }
  cp_async_wait<0>();
  finish_tile(warp, a, memory, split);
}

void launch_decode(const DecodePlan& plan, const Arguments& arguments, void* partials, cudaStream_t stream) {
  DecodeArguments a{arguments};
  a.row_tiles = static_cast<std::uint32_t>(plan.row_tiles);
  a.first_split = plan.first_split, a.splits = plan.splits, a.split_keys = plan.split_keys;
  a.partials = static_cast<float*>(partials);
  with_index<kDecodeTiles.size()>(plan.tile, [&](auto index) {
    constexpr DecodeTile kTile = kDecodeTiles[index];
    const Grid grid{.blocks = static_cast<unsigned>(plan.ctas), .threads = kDecodeThreads, .early = true};
    enqueue_with_shared<attention_decode<index>, kTile.shared_bytes()>(grid, stream, a);
    if (plan.splits == 1) return;
    const auto rows = static_cast<unsigned>(a.total_rows());
    enqueue(attention_decode_merge<kTile.head_size>, {.blocks = rows, .threads = kDecodeMergeThreads, .early = true}, stream, a);
  });
}

}  // namespace xgemm::attention
