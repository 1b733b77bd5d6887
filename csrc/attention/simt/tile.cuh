// Attention on CUDA cores: one block computes a tile of query rows against all keys, or against one split of them.
//
// Contract: query (batch, group, Sq, D), key (batch, Sk, D), value (batch, Sk, Dv) and the mask with any strides, fp32, fp16,
// bf16 or fp64; output and lse contiguous. D up to kTile.query_size(), Dv up to kTile.head_size. sm_80 and later (cp.async). Grid
// in x: row tiles, batches, splits.
//
// Algorithm: FlashAttention-2's loop (Dao 2023) over Milakov and Gimelshein's online softmax (2018). Query rows stay in shared
// memory; keys come as slabs of kTile.depth head dims, values as slabs of a few keys, each copied while the previous one is
// used. A thread keeps kTile.thread_rows x (keys / 16) scores and thread_rows x (head_size / 16) outputs in registers; the 16
// threads of a group share rows, so row maxima and sums are shuffles and the weights pass through shared memory within a
// half-warp. Every score is one chain of FMAs over D, every output one chain over the keys of a split: bits do not depend on
// thread_rows.
//
// Floor: 2 Sq Sk (D + Dv) operations on FMA units (67 TFLOP/s fp32 on an H200); keys and values cross L2 once per row tile.
// With 8 rows per thread, shared memory is read at 0.4 of its bandwidth and 6 % of the issue slots; with 1 row it is the limit.
#pragma once
#include "attention/simt/batch.cuh"
#include "attention/simt/finish.cuh"
#include "attention/simt/weights.cuh"

namespace xgemm::attention {

/// kSimtTiles[kIndex] (nvcc does not compile a kernel whose template argument is a struct).
template <int kIndex, bool kSequences>
__global__ void __launch_bounds__(kThreads, kSimtTiles[kIndex].blocks)
    attention_tile(const __grid_constant__ SimtArguments<kSequences> a) {
  constexpr SimtTile kTile = kSimtTiles[kIndex];
  using C = Constants<kTile>;
  using Acc = typename C::Acc;
  constexpr int kSlabRows = kTile.value_rows();
  extern __shared__ __align__(16) unsigned char shared[];
  Acc* const queries = reinterpret_cast<Acc*>(shared);
  Acc* const weights = queries + kTile.rows() * kTile.query_stride();
  Acc* const slabs = weights + kTile.rows() * kTile.weight_stride();
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  Acc* const maxima =
      slabs + 2 * kTile.slab() + group;  // of row i * kGroups + group at i * kGroups; there are no registers for them
  Acc* const sums = maxima + kTile.rows();

  // This block's rows, batch and split. Causal blocks with the most keys start first.
  std::uint32_t rest = blockIdx.x;
  std::uint32_t row_tile = rest % a.row_tiles;
  if (a.last < a.sk) row_tile = a.row_tiles - 1 - row_tile;
  rest /= a.row_tiles;
  const Batch<kSequences> place(a, rest, static_cast<int>(row_tile) * kTile.rows());
  const std::uint32_t batch = place.batch;
  if (a.failed != nullptr && __ldcg(a.failed + batch) == 0) return;
  const int only_split = place.split;
  const int first_row = place.first_row;
  const TileRows rows{batch, first_row, min(kTile.rows(), place.end_row - first_row)};
  if (kSequences && rows.count <= 0) return;
  const auto& bounds = place.bounds(a);

  const int key_begin = keys_begin(bounds, rows.first_position(a)),
            key_end = keys_end(bounds, rows.last_position(a));  // no row of the tile sees others
  const int split_begin = (only_split + a.first_split) * kSplitKeys;
  const int first_key = max(key_begin / kTile.keys * kTile.keys, a.parallel ? split_begin : 0);
  const int end_key = a.parallel ? min(split_begin + kSplitKeys, key_end) : key_end;
  if (a.parallel && first_key >= end_key) return;  // the merge does not read this split

  // Offsets of this batch's operands.
  std::int64_t query_at = 0, key_at = 0, value_at = 0, mask_at = 0;
  add_batch(a, batch, query_at, key_at, value_at, mask_at);
  const auto at = [&](const Operand& x, std::int64_t elements) {
    return static_cast<const char*>(x.data) + elements * static_cast<std::int64_t>(size_of(a.dtype));
  };

  // The stream of slabs: per step of kTile.keys keys, the key slabs (one even if D = 0) and then the value slabs.
  const int key_slabs = max((a.d + kTile.depth - 1) / kTile.depth, 1);
  const auto value_slabs = [&](int key) { return (min(kTile.keys, end_key - key) + kSlabRows - 1) / kSlabRows; };
  int next_key = first_key, next_slab = 0, next_buffer = 0;
  const auto copy_next = [&] {
    if (next_key < end_key) {
      Acc* const slab = slabs + next_buffer * kTile.slab();
      if (next_slab < key_slabs) {
        const int column = next_slab * kTile.depth;
        stage<Acc, kTile.keys, kTile.depth, kTile.key_stride()>(
            slab, at(a.key, key_at + place.base(a.key, next_key) + column * a.key.column), a.dtype, a.key.vector, a.key.column,
            [&, left = end_key - next_key](int row) { return row < left && place.exists(a, next_key + row); }, a.d - column,
            [&](int row) { return place.row(a, a.key, next_key, row); });
      } else {
        const int key = next_key + (next_slab - key_slabs) * kSlabRows;
        stage<Acc, kSlabRows, kTile.head_size, kTile.head_size>(
            slab, at(a.value, value_at + place.base(a.value, key)), a.dtype, a.value.vector, a.value.column,
            [&, left = end_key - key](int row) { return row < left && place.exists(a, key + row); }, a.dv,
            [&](int row) { return place.row(a, a.value, key, row); });
      }
      if (++next_slab == key_slabs + value_slabs(next_key)) next_slab = 0, next_key += kTile.keys;
      next_buffer ^= 1;
    }
    cp_async_commit();
  };

  constexpr int kTogether = kTile.wide == 0 ? kTile.head_size : 64;  // columns of a row that threads copy side by side
  if (first_key < end_key)
    for (int column = 0; column < max(a.d, 1); column += kTogether)
      stage<Acc, kTile.rows(), kTogether, kTile.query_stride()>(
          queries + column, at(a.query, query_at + column * a.query.column), a.dtype, a.query.vector, a.query.column,
          [&](int row) { return row < rows.count; }, a.d - column, [&](int row) { return Row(a, batch, first_row + row).query; });

  copy_next();

  Acc output[C::kRows][C::kColumns], scores[C::kRows][C::kKeys];
  const auto reset = [&] {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < C::kRows; ++i) {
      if (lane == 0) maxima[i * kGroups] = -Acc(INFINITY), sums[i * kGroups] = 0;
#pragma unroll
      for (int c = 0; c < C::kColumns; ++c) output[i][c] = 0;
    }
    __syncwarp();
  };
  reset();

  int slab = 0, buffer = 0;
  for (int key = first_key; true;) {
    if (key < end_key) {
      cp_async_wait<0>();
      __syncthreads();  // this slab has arrived, and no thread reads the other one any more
      copy_next();
      const Acc* const current = slabs + buffer * kTile.slab();
      buffer ^= 1;
      if (slab == 0) {
#pragma unroll
        for (int i = 0; i < C::kRows; ++i)
#pragma unroll
          for (int j = 0; j < C::kKeys; ++j) scores[i][j] = 0;
      }
      if (slab < key_slabs) {
        const int depth = min(kTile.depth, a.d - slab * kTile.depth);
        multiply_keys<kTile>(scores, queries + slab * kTile.depth, current, depth);
      } else {
        multiply_values<kTile>(output, weights + (slab - key_slabs) * kSlabRows, current);
      }
      ++slab;
      if (slab == key_slabs) weigh<kTile>(scores, output, a, bounds, rows, mask_at, key, weights, maxima, sums);
      if (slab < key_slabs + value_slabs(key)) continue;
      slab = 0;
      key += kTile.keys;
      if (key < end_key && key % kSplitKeys != 0) continue;
    }

    // The end of a split (or no key at all).
    const bool last = key >= end_key;
    finish_split<kTile>(output, a, bounds, rows, only_split, key, last, weights, maxima, sums);
    if (last) return;
    reset();
  }
}

}  // namespace xgemm::attention
