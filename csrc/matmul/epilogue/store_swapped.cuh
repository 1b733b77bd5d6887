// Stores a tile of C^T (swap_ab) with alpha, bias and activation.
#pragma once
#include <type_traits>

#include "device/ptx/stmatrix.cuh"
#include "matmul/epilogue/box.cuh"
#include "matmul/wgmma/schedule.cuh"

namespace xgemm::matmul::wgmma_detail {

/// `row` and `column` are C's, `tile` that of C^T. Matrices of eight rows of C by eight columns are transposed into the
/// warpgroup's staging, some rows of its 64 columns at a time, in TMA's swizzle. TMA stores them, eight rows per box; if rows of
/// C are unaligned, they are stored one element at a time.
template <class Out, class Config>
__device__ __forceinline__ void store_swapped(const float (&sums)[Config::kValue.tile_n / 2], const WgmmaArguments& g,
                                              const Tile& tile, int warp, int lane, unsigned char* staging,
                                              const float* shared_bias) {
  constexpr int kTileN = Config::kValue.tile_n, kTurn = 32, kTurns = kTileN / kTurn, kRowBytes = 128;
  constexpr int kRound = 2 * Config::kValue.staging_bytes() / kRowBytes, kRoundTurns = kRound / kTurn;  // rows of a buffer
  const Problem& p = g.problem;
  const int consumer = warp / 4, quarter = warp % 4, barrier = kStoreBarrier + consumer;
  const int row = tile.column, column = tile.row + 64 * consumer, batch = tile.batch;
  const int columns = static_cast<int>(p.m), rows_end = min(static_cast<int>(p.n), row + g.tiles.width);
  if (column >= columns) return;
  staging += 4 * consumer * Config::kValue.staging_bytes();
  const std::uint32_t place =
      ptx::shared_address(staging) +
      static_cast<unsigned>((lane / 16 * 8 + lane % 8) * kRowBytes + ((2 * quarter + lane / 8 % 2) ^ (lane % 8)) * 16);
  float add[2] = {};
  if (g.fills_bias) {
#pragma unroll
    for (int h = 0; h < 2; ++h) add[h] = shared_bias[64 * consumer + 16 * quarter + lane / 4 + 8 * h];
  }
  const float alpha = g.alpha;
  // x[i]: row 8 (i / 4) + 2 (lane % 4) + i % 2 of the turn, column lane / 4 + 8 (i / 2 % 2) of the warp.
  const auto store_turn = [&](float(&x)[kTurn / 2], int turn, auto activates) {
    const int here = row + turn * kTurn, first = row + turn / kRoundTurns * kRound;
    const int buffer = turn / kRoundTurns % 2 * (kRound * kRowBytes);
    if (turn % kRoundTurns == 0) {
      wait_for_buffer(turn == 0);
      ptx::named_barrier_sync(barrier, 128);  // no thread or store reads the buffer any more
    }
#pragma unroll
    for (int i = 0; i < kTurn / 2; ++i) {
      x[i] = scaled(alpha, x[i]);
      if (g.fills_bias) x[i] = plus(x[i], add[i / 2 % 2]);
    }
    if constexpr (activates) activate_all<Out>(x, p.activation);
#pragma unroll
    for (int j = 0; j < kTurn / 16; ++j) {
      std::uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) pairs[i] = rounded_pair<Out>(x[8 * j + 2 * i], x[8 * j + 2 * i + 1]);
      ptx::store_matrices_transposed(place + static_cast<unsigned>(buffer + (turn % kRoundTurns * kTurn + 16 * j) * kRowBytes),
                                     pairs);
    }
    if (turn % kRoundTurns != kRoundTurns - 1 && here + kTurn < rows_end) return;
    const int rows = min(rows_end - first, kRound);
    if (g.boxes) {
      ptx::fence_async_shared();
      ptx::named_barrier_sync(barrier, 128);
      const int c0 = warp_uniform(column), c1 = warp_uniform(first), c2 = warp_uniform(batch),
                boxes = warp_uniform((rows + 7) / 8),
                from = warp_uniform(static_cast<int>(ptx::shared_address(staging)) + buffer);
      if (ptx::elect_one()) {
#pragma unroll 1
        for (int box = quarter; box < boxes; box += 4)
          ptx::tma_store(&g.out, __cvta_shared_to_generic(static_cast<unsigned>(from + box * 8 * kRowBytes)), c0, c1 + 8 * box,
                         c2);
        ptx::tma_store_commit();
      }
    } else {
      ptx::named_barrier_sync(barrier, 128);
      Out* const out = static_cast<Out*>(p.out) + (static_cast<std::int64_t>(batch) * p.n + first) * p.m + column;
      const int wide = min(64, columns - column);
#pragma unroll 1
      for (int r = quarter; r < rows; r += 4) {
#pragma unroll 1
        for (int c = lane; c < wide; c += 32)
          out[r * p.m + c] = *reinterpret_cast<const Out*>(staging + buffer + r * kRowBytes + ((c / 8) ^ (r % 8)) * 16 +
                                                           c % 8 * static_cast<int>(sizeof(Out)));
      }
    }
  };
  if (p.activation != Activation::none) {
#pragma unroll 1
    for (int turn = 0; turn < kTurns && row + turn * kTurn < rows_end; ++turn) {
      float x[kTurn / 2];
#pragma unroll
      for (int known = 0; known < kTurns; ++known) {  // registers have no run-time index
        if (known != turn) continue;
        __syncwarp();  // so that this is a branch
#pragma unroll
        for (int i = 0; i < kTurn / 2; ++i) x[i] = sums[kTurn / 2 * known + i];
      }
      store_turn(x, turn, std::true_type{});
    }
    return;
  }
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    if (row + turn * kTurn >= rows_end) break;
    float x[kTurn / 2];
#pragma unroll
    for (int i = 0; i < kTurn / 2; ++i) x[i] = sums[kTurn / 2 * turn + i];
    store_turn(x, turn, std::false_type{});
  }
}

}  // namespace xgemm::matmul::wgmma_detail
