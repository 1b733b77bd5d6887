// Stores C of a swapped product: its tile is one of C^T, so that wgmma's n, which has any width, lies along C's rows. stmatrix
// turns it around in shared memory; alpha, bias and activation only.
#pragma once
#include "matmul/epilogue/store_tma.cuh"

namespace xgemm::matmul::wgmma_detail {

/// Called by a consumer warpgroup. `row`: of C^T, the first of its 64; `column`: the tile's first. `staging`: 16 KiB, in which
/// boxes of 64 columns of C by 64 rows alternate between two buffers; each warp stores 16 rows of a box by TMA. `bias`: of the
/// 64 rows of C^T. `barrier`: the warpgroup's own.
template <class Out, WgmmaConfig kConfig>
__device__ __forceinline__ void store_swapped(const float (&sums)[kConfig.tile_n / 2], const WgmmaArguments& g, int row,
                                              int column, int batch, int thread, unsigned char* staging, const float* bias,
                                              int barrier) {
  constexpr int kBox = 64, kTurn = 32;
  const Problem& p = g.problem;
  if (row >= static_cast<int>(p.m)) return;
  const int lane = thread % 32, warp = warp_uniform(thread / 32);
  const int end = min(g.tiles.width, static_cast<int>(p.n) - column);  // of the tile's columns
  const float alpha = g.alpha;
  const bool has_bias = p.bias.data != nullptr;
  float add[2] = {};  // of the lane's rows lane / 4 and 8 further
  if (has_bias) {
#pragma unroll
    for (int h = 0; h < 2; ++h) add[h] = bias[16 * warp + lane / 4 + 8 * h];
  }
  // Matrix i of stmatrix: row lane % 8 of it holds 8 rows of C^T, those of h = i % 2, at column 8 (i / 2) + lane % 8.
  const std::uint32_t place = ptx::shared_address(staging) + static_cast<unsigned>((lane / 16 * 8 + lane % 8) * 128 +
                                                                                   ((2 * warp + lane / 8 % 2) ^ (lane % 8)) * 16);
  const auto store_turn = [&](float(&x)[kTurn / 2], int turn, auto activated) {
    const int buffer = turn / 2 % 2 * kBox * 128;
    if (turn % 2 == 0) {
      wait_for_buffer(turn == 0);
      ptx::named_barrier_sync(barrier, 128);  // all warps' stores have read it
    }
#pragma unroll
    for (int i = 0; i < kTurn / 2; ++i) x[i] = scaled(alpha, x[i]);
    if (has_bias) {
#pragma unroll
      for (int i = 0; i < kTurn / 2; ++i) x[i] = plus(x[i], add[i / 2 % 2]);
    }
    if constexpr (activated) activate_all<Out>(x, p.activation);
#pragma unroll
    for (int j = 0; j < kTurn / 16; ++j) {
      std::uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) pairs[i] = rounded_pair<Out>(x[8 * j + 2 * i], x[8 * j + 2 * i + 1]);
      ptx::store_matrices_transposed(place + static_cast<unsigned>(buffer + (turn % 2 * kTurn + 16 * j) * 128), pairs);
    }
    if (turn % 2 == 0 && (turn + 1) * kTurn < end) return;
    ptx::fence_async_shared();
    ptx::named_barrier_sync(barrier, 128);
    const int first = turn / 2 * kBox + 16 * warp;  // of the columns that this warp stores
    if (first < end && ptx::elect_one()) {
      ptx::tma_store(&g.out, staging + buffer + 2048 * warp, row, column + first, batch);
      ptx::tma_store_commit();
    }
  };
  if (p.activation == Activation::none)
    each_turn<kTurn, false>(sums, end, [&](auto& x, int turn) { store_turn(x, turn, std::false_type{}); });
  else
    each_turn<kTurn, true>(sums, end, [&](auto& x, int turn) { store_turn(x, turn, std::true_type{}); });
}

}  // namespace xgemm::matmul::wgmma_detail
