// Attention on CUDA cores: one block computes a tile of query rows against all keys, or against one split of them.
//
// Contract: query (batch, group, Sq, D), key (batch, Sk, D), value (batch, Sk, Dv) and the mask with any strides, fp32, fp16,
// bf16 or fp64; output and lse contiguous. D up to kTile.query_size(), Dv up to kTile.head_size. sm_80 and later (cp.async). Grid
// in x: row tiles, batches, splits; of sequences of different lengths (SimtArguments): row tiles, key heads, sequences.
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
#include "attention/simt/copies.cuh"
#include "attention/simt/finish.cuh"
#include "device/launch.h"

namespace xgemm::attention {

/// kSimtTiles[kIndex] (nvcc does not compile a kernel whose template argument is a struct).
template <int kIndex>
__global__ void __launch_bounds__(kThreads, kSimtTiles[kIndex].blocks) attention_tile(const __grid_constant__ SimtArguments a) {
  constexpr SimtTile kTile = kSimtTiles[kIndex];
  using C = Constants<kTile>;
  using Acc = typename C::Acc;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ Block block;
  Acc* const queries = reinterpret_cast<Acc*>(shared);
  Acc* const weights = queries + kTile.rows() * kTile.query_stride();
  Acc* const slabs = weights + kTile.rows() * kTile.weight_stride();
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  Acc* const maxima =
      slabs + 2 * kTile.slab() + group;  // of row i * kGroups + group at i * kGroups; there are no registers for them
  Acc* const sums = maxima + kTile.rows();

  if (a.failed != nullptr && __ldcg(a.failed + blockIdx.x / a.row_tiles % a.batches) == 0) return;
  if (threadIdx.x == 0) describe_block(block, a, kTile.rows(), kTile.keys);
  __syncthreads();
  if (block.count <= 0) return;
  Copies<kTile> copies(a, block, queries, slabs);
  const int key_slabs = copies.key_slabs();

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

  int slab = copies.slab - 1, buffer = 0;  // negative: the queries and the first slab have not been asked for
  for (int key = block.first_key; true;) {
    if (key < block.end_key) {
      if (slab >= 0) {
        cp_async_wait<0>();
        __syncthreads();  // this slab has arrived, and no thread reads the other one any more
      }
      copies.start();
      if (slab < 0) {
        ++slab;
        continue;
      }
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
        multiply_values<kTile>(output, weights + (slab - key_slabs) * kTile.value_rows(), current);
      }
      ++slab;
      if (slab == key_slabs) weigh<kTile>(scores, output, a, block, key, weights, maxima, sums);
      if (slab < key_slabs + copies.value_slabs(key)) continue;
      slab = 0;
      key += kTile.keys;
      if (key < block.end_key && key % kSplitKeys != 0) continue;
    }

    // The end of a split (or no key at all).
    const bool last = key >= block.end_key;
    finish_split<kTile>(output, a, block, key, last, maxima, sums);
    if (last) return;
    reset();
  }
}

template <bool kFp64>
void launch_simt_tile(const SimtPlan& plan, const SimtArguments& arguments, cudaStream_t stream) {
  with_index<kSimtTiles.size()>(plan.tile, [&](auto index) {
    constexpr SimtTile kTile = kSimtTiles[index];
    if constexpr (kTile.fp64 == kFp64) {
      constexpr auto kernel = attention_tile<index>;
      if constexpr (kTile.shared_bytes() > 48 * 1024) allow_shared<kernel, kTile.shared_bytes()>();
      kernel<<<static_cast<unsigned>(plan.blocks), kThreads, kTile.shared_bytes(), stream>>>(arguments);
    }
  });
}

}  // namespace xgemm::attention
