// Attention whose values are columns of the keys (sm_90a), half or bf16: latent attention (DeepSeek's MLA, absorbed), with keys
// of 512 + 64 columns and values that are their first 512.
//
// Computes what kernel.cuh does without masks: causal with any shift, windows, soft capping, sinks, the log-sum-exp.
//   Operands   as kernel.cuh's; the values are the keys' first Dv columns. D up to 576, Dv up to 512, zeros beyond; scale > 0.
//   Roles      a CTA has one item: 64 rows against one split of the keys. Warpgroup 0 loads by TMA. Warpgroups 1 and 2, the two
//              sides, share the rows: a step is 128 keys, of which each side computes the scores of 64, and each side sums 256
//              columns of the outputs for all 128, as registers allow. (FlashMLA's division of work; here the sides exchange
//              their maxima first, so that both have the same.)
//   Slots      one for each side's 64 keys, in three parts: the left and the right 256 columns, which one side each reads last,
//              and 64 more, in whose place the side leaves its weights for the other.
//   Order      as kernel.cuh's; a step's maximum is that of all 128 keys, its left half is added first on side 0, the right half
//              on side 1.
//   Floor      Sk D elements of keys through memory once for all rows, 64 rows at a time through L2; 2 Sq Sk (D + Dv) flop at
//   4096
//              a cycle and SM. Shared memory is read as long as the tensor cores multiply: 148 KB for the scores of 64 keys.
#pragma once
#include "attention/tiles/finish.cuh"
#include "attention/tiles/mask.cuh"
#include "attention/tiles/scheduler.cuh"
#include "attention/tiles/softmax.cuh"
#include "attention/tiles/splits.cuh"
#include "attention/wgmma/latent.h"
#include "device/pipeline.cuh"
#include "device/ptx/grid.cuh"
#include "device/ptx/stmatrix.cuh"
#include "device/ptx/tma.cuh"
#include "device/ptx/warpgroup.cuh"
#include "device/ptx/wgmma.cuh"
#include "device/shared_memory.cuh"

namespace xgemm::attention {

/// Shared memory and its barriers.
struct LatentShared {
  static constexpr int kBlock = 64 * Tile::kBlockBytes;  ///< 64 rows or keys by 64 columns
  static constexpr int kBlocks = kLatentTile.head_size / 64, kSlot = kBlocks * kBlock;
  /// A part's first block, and its number of blocks.
  static __device__ __forceinline__ int first_block(int part) { return 4 * part; }
  static __device__ __forceinline__ int blocks_of(int part) { return part == 2 ? 1 : 4; }
  using Rows = ptx::OperandLayout<true, Tile::kBlockBytes, kBlock>;     ///< queries, keys and weights
  using Values = ptx::OperandLayout<false, Tile::kBlockBytes, kBlock>;  ///< keys by columns

  unsigned char *queries, *keys;
  ptx::Barrier *queries_full, *full, *empty;  ///< of parts: [slot][part]
  float* exchange;                            ///< [side][row]

  __device__ __forceinline__ explicit LatentShared(unsigned char* memory)
      : queries(memory),
        keys(memory + kSlot),
        queries_full(reinterpret_cast<ptx::Barrier*>(keys + 2 * kSlot)),
        full(queries_full + 1),
        empty(full + 2 * kLatentParts),
        exchange(reinterpret_cast<float*>(empty + 2 * kLatentParts)) {}
  __device__ __forceinline__ unsigned char* part(int slot, int part) const {
    return keys + slot * kSlot + first_block(part) * kBlock;
  }

  /// Called by one thread; a CTA barrier follows. A part is read last by the four warps of one side.
  __device__ __forceinline__ void init_barriers() const {
    ptx::barrier_init(queries_full, 1);
    for (int i = 0; i < 2 * kLatentParts; ++i) ptx::barrier_init(full + i, 1), ptx::barrier_init(empty + i, 4);
    ptx::fence_barrier_init();
  }
};

/// The producer's warp: parts in the order in which the sides release them, which is that in which they need them.
__device__ __forceinline__ void produce_latent(const TileArguments& g, const LatentShared& shared, const RowTile& tile) {
  using S = LatentShared;
  const bool leads = ptx::elect_one();
  if (leads) {
    ptx::barrier_arrive_expect(shared.queries_full, S::kBlocks * g.tile_rows * Tile::kBlockBytes);
    for (int block = 0; block < S::kBlocks; ++block)
      ptx::tma_load(shared.queries + block * S::kBlock, &g.query, shared.queries_full, 64 * block, tile.head,
                    g.pack.divide(tile.row), tile.inner * g.query_steps.inner, tile.outer * g.query_steps.outer);
  }
  unsigned parity = 1;  // of the parts' empty barriers
  for (KeyWalk<kLatentTile.keys, Masking::edges> walk(g, tile); walk.valid(); walk.next(), parity ^= 1)
    for (int i = 0; i < 2 * kLatentParts; ++i) {
      const int slot = i % 2, part = i == 2 ? 1 : i == 3 ? 0 : i < 2 ? i : 2;  // (0, 0), (1, 1), (0, 1), (1, 0), (0, 2), (1, 2)
      ptx::Barrier* const landed = shared.full + slot * kLatentParts + part;
      ptx::barrier_wait(shared.empty + slot * kLatentParts + part, parity);
      __syncwarp();
      if (!leads) continue;
      ptx::barrier_arrive_expect(landed, S::blocks_of(part) * S::kBlock);
      for (int block = 0; block < S::blocks_of(part); ++block)
        ptx::tma_load(shared.part(slot, part) + block * S::kBlock, &g.key, landed, 64 * (S::first_block(part) + block),
                      walk.n * kLatentTile.keys + 64 * slot, tile.inner * g.key_steps.inner, tile.outer * g.key_steps.outer);
    }
}

/// A side: scores of the keys of slot `side`, and the columns of the outputs from 256 `side` on.
template <class Element>
struct LatentSide {
  using S = LatentShared;
  static constexpr int kKeys = kLatentTile.keys / 2, kColumns = kLatentTile.value_size / 2;
  static constexpr int kBothSides = 256;  ///< threads

  const TileArguments& g;
  const S& shared;
  const int side, warp_row;  ///< the warp's first row
  unsigned parity = 0;       ///< of the parts' full barriers
  float scores[kKeys / 2], outputs[kColumns / 2] = {};
  std::uint32_t weights[kKeys / 16][4];
  OnlineSoftmax<kKeys> softmax = {};

  __device__ __forceinline__ LatentSide(const TileArguments& arguments, const S& memory, int mine)
      : g(arguments), shared(memory), side(mine), warp_row(Place().warp_row % 64) {}

  __device__ __forceinline__ void wait(int slot, int part) const {
    ptx::barrier_wait(shared.full + slot * kLatentParts + part, parity);
  }
  __device__ __forceinline__ void release(int slot, int part) const {
    if (threadIdx.x % 32 == 0) ptx::barrier_arrive(shared.empty + slot * kLatentParts + part);
  }
  __device__ __forceinline__ float* exchanged(int of) const { return shared.exchange + 64 * of + warp_row; }

  /// Issues the products of queries and keys over a part's columns.
  template <int kSteps>
  __device__ __forceinline__ void multiply_part(int part, bool accumulate) {
    const auto q = S::Rows::descriptor_low(ptx::shared_address(shared.queries + S::first_block(part) * S::kBlock));
    const auto k = S::Rows::descriptor_low(ptx::shared_address(shared.part(side, part)));
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      ptx::Wgmma<Element, true, true>::mma(scores, S::Rows::descriptor(q, step / 4 * S::kBlock + step % 4 * S::Rows::kStepBytes),
                                           S::Rows::descriptor(k, step / 4 * S::kBlock + step % 4 * S::Rows::kStepBytes),
                                           accumulate || step != 0);
  }
  __device__ __forceinline__ void multiply_keys() {
    wait(side, side);
    ptx::wgmma_pin(scores);
    multiply_part<16>(side, false);
    wait(side, 1 - side);
    multiply_part<16>(1 - side, true);
    wait(side, 2);
    multiply_part<4>(2, true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(scores);
  }

  /// Raises the maxima to those of both sides' scores.
  __device__ __forceinline__ void raise_maxima() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float largest[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      largest[h] = row_maximum(scores, h);
      if (lane % 4 == 0) exchanged(side)[lane / 4 + 8 * h] = largest[h];
    }
    ptx::named_barrier_sync(kPairBarrier, kBothSides);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float before = softmax.maximum[h];
      softmax.maximum[h] = fmaxf(before, fmaxf(largest[h], exchanged(1 - side)[lane / 4 + 8 * h]));
      softmax.factor[h] = rescale_factor(before, softmax.maximum[h], g.scale_log2);
    }
  }

  /// Leaves the weights in the place of the slot's last part, where the other side reads them.
  __device__ __forceinline__ void leave_weights() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::uint32_t row = ptx::shared_address(shared.part(side, 2)) + (warp_row + lane % 16) * Tile::kBlockBytes;
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      to_fragment<Element>(weights[step], scores, step);
      ptx::store_matrices(row + 16 * ((2 * step + lane / 16) ^ (lane % 8)), weights[step]);
    }
    ptx::fence_async_shared();
    ptx::named_barrier_sync(kPairBarrier, kBothSides);
  }

  /// Adds this side's columns of the values of both slots, first its own, by their weights.
  __device__ __forceinline__ void multiply_values() {
    wait(1 - side, side);
    const auto mine = S::Values::descriptor_low(ptx::shared_address(shared.part(side, side)));
    const auto other = S::Values::descriptor_low(ptx::shared_address(shared.part(1 - side, side)));
    const auto others_weights = S::Rows::descriptor_low(ptx::shared_address(shared.part(1 - side, 2)));
    ptx::wgmma_pin(outputs);
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) ptx::wgmma_pin(weights[step]);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step)
      ptx::WgmmaRegisters<Element, false>::mma(outputs, weights[step], S::Values::descriptor(mine, step * S::Values::kStepBytes),
                                               true);
    ptx::wgmma_commit();
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step)
      ptx::Wgmma<Element, true, false>::mma(outputs, S::Rows::descriptor(others_weights, step * S::Rows::kStepBytes),
                                            S::Values::descriptor(other, step * S::Values::kStepBytes), true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    release(side, side);
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(outputs);
    release(1 - side, side);
    release(1 - side, 2);
  }

  __device__ __forceinline__ void run(const RowTile& tile) {
    const int first_row = warp_row + static_cast<int>(threadIdx.x) % 32 / 4;
    int begin[2], end[2];  // keys that this thread's rows see
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int position = position_of(g, tile.row + first_row + 8 * h);
      begin[h] = keys_begin(g, position), end[h] = keys_end(g, position);
    }
    ptx::barrier_wait(shared.queries_full, 0);
#pragma unroll 1
    for (KeyWalk<kLatentTile.keys, Masking::edges> walk(g, tile); walk.valid(); walk.next(), parity ^= 1) {
      multiply_keys();
      if (g.cap_scale != 0.f) cap_scores(scores, g.cap_scale);
      if (walk.on_edge()) mask_edges<kKeys>(scores, walk.n * kLatentTile.keys + side * kKeys, begin, end);
      raise_maxima();
      softmax.exponentiate_half(scores, g.scale_log2);
      softmax.rescale(outputs);
      leave_weights();
      multiply_values();
    }
    finish(tile, first_row);
  }

  /// Adds the sides' sums, and stores this side's columns.
  __device__ __forceinline__ void finish(const RowTile& tile, int first_row) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    softmax.finish();
#pragma unroll
    for (int h = 0; h < 2; ++h)
      if (lane % 4 == 0) exchanged(side)[lane / 4 + 8 * h] = softmax.sum[h];
    ptx::named_barrier_sync(kPairBarrier, kBothSides);
#pragma unroll
    for (int h = 0; h < 2; ++h) softmax.sum[h] = exchanged(0)[lane / 4 + 8 * h] + exchanged(1)[lane / 4 + 8 * h];
    if (g.through_memory)
      leave_partials<2>(outputs, softmax.maximum, softmax.sum, g, tile, first_row, side);
    else
      store_rows(tile, first_row);
  }
  __device__ __forceinline__ void store_rows(const RowTile& tile, int first_row) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first_row + 8 * h;
      const std::int64_t out = row < g.tile_rows ? tile.output_row(g, tile.row + row) : -1;
      float maximum = softmax.maximum[h], sum = softmax.sum[h];
      const float keys = sum, inverse = finish_row(g, tile, tile.row + row, maximum, sum);
      if (out < 0) continue;
      if (g.lse != nullptr && side == 0 && lane % 4 == 0) g.lse[out] = log_sum(maximum, sum, g.scale);
      std::uint32_t* const to = static_cast<std::uint32_t*>(g.out) + g.out_rows.place(out) * g.dv / 2;
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        const int column = side * kColumns + 8 * j + 2 * (lane % 4);
        const float* const pair = outputs + 4 * j + 2 * h;
        // 0 if the row sees no key, even if a value is NaN
        if (column < g.dv) to[column / 2] = keys == 0.f ? 0 : pack_pair<Element>(pair[0] * inverse, pair[1] * inverse);
      }
    }
  }
};

template <class Element>
__global__ void __launch_bounds__(kLatentThreads, 1) attention_latent(const __grid_constant__ TileArguments g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char attention_latent_memory[];
  const LatentShared shared(attention_latent_memory);
  if (threadIdx.x == 32) shared.init_barriers();
  if (threadIdx.x == 64) ptx::prefetch_tensor_map(&g.query), ptx::prefetch_tensor_map(&g.key);
  __syncthreads();
  ptx::grid_release();
  ptx::grid_wait();

  const RowTile tile(g, static_cast<int>(blockIdx.x));
  const int warpgroup = warp_uniform(static_cast<int>(threadIdx.x) / 128);
  if (warpgroup == 0) {
    ptx::release_registers<24>();
    if (threadIdx.x < 32) produce_latent(g, shared, tile);
  } else {
    ptx::acquire_registers<240>();
    LatentSide<Element>(g, shared, warpgroup - 1).run(tile);
  }
#endif
}

}  // namespace xgemm::attention
