// Stores the accumulators of a wgmma warp. Its paths give equal bits:
//   direct  alpha and bias of few rows, from registers, two columns per lane;
//   TMA     through shared memory in boxes (epilogue/store_tma.cuh), unaligned rows in pieces (epilogue/store_ragged.cuh);
//   rows    any epilogue, any n: fp32 through shared memory, 16 rows of 64 columns at a time, then a few rows at a time, two
//           columns per lane, so that C, residual and out are accessed in whole cache lines (epilogue/store_rows.cuh).
// Others: store_gated.cuh, store_swapped.cuh, and wgmma/split_k.cuh for splits of K.
#pragma once
#include "matmul/epilogue/store_rows.cuh"
#include "matmul/epilogue/store_tma.cuh"

namespace xgemm::matmul::wgmma_detail {

template <class Out, int kTileN>
__device__ __forceinline__ void store_direct(const float (&sums)[kTileN / 2], const WgmmaArguments& g, int row, int column, int n,
                                             int batch, int lane) {
  const Problem& p = g.problem;
  const int m = static_cast<int>(p.m), quad = lane % 4, first = lane / 4;
  const float alpha = g.alpha;
  const Out* const bias = static_cast<const Out*>(p.bias.data);
  Out* const out = static_cast<Out*>(p.out) + static_cast<std::int64_t>(batch) * m * p.n;
#pragma unroll
  for (int j = 0; j < kTileN / 8; ++j) {
    const int c = column + 8 * j + 2 * quad;
    if (c >= n) break;
    float add[2] = {};
    if (bias) add[0] = convert<float>(bias[c * p.bias.col_stride]), add[1] = convert<float>(bias[(c + 1) * p.bias.col_stride]);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = row + first + 8 * h;
      if (r >= m) break;
      float x[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        x[i] = scaled(alpha, sums[4 * j + 2 * h + i]);
        if (bias) x[i] = plus(x[i], add[i]);
      }
      store_vector(out + static_cast<std::int64_t>(r) * p.n + c, Vector<Out, 2>{{convert<Out>(x[0]), convert<Out>(x[1])}});
    }
  }
}

/// `row` is the first of the warp's 16 rows, `column` the first of the tile's columns; `staging`: 4 KiB, aligned to 1024 bytes.
/// The sums are not changed: they may be wgmma's accumulators, and ptxas serialises wgmmas if anything else writes them.
template <class Out, WgmmaConfig kConfig>
__device__ __forceinline__ void store_tile(const float (&sums)[kConfig.tile_n / 2], const WgmmaArguments& g, int row, int column,
                                           int batch, int lane, unsigned char* staging, const int* scales, int row_in_tile) {
  constexpr int kTileM = kConfig.tile_m, kTileN = kConfig.tile_n;
  const Problem& p = g.problem;
  const int m = static_cast<int>(p.m), n = min(static_cast<int>(p.n), column + g.tiles.width);
  if (row >= m) return;
  const int quad = lane % 4, first = lane / 4;  // the lane's columns 2 quad, 2 quad + 1 of each 8; its rows first, first + 8
  if constexpr (kConfig.may_store_direct()) {
    if (g.direct) return store_direct<Out, kTileN>(sums, g, row, column, n, batch, lane);
  }
  bool moderate = true;
  if constexpr (kConfig.scaled) moderate = scales[kTileM + kTileN] & scales[kTileM + kTileN + 1] & scales[kTileM + kTileN + 2];
  if (kTileN * sizeof(Out) >= kConfig.box_c() && g.boxes && moderate)
    return store_tma<Out, kConfig>(sums, g, row, column, n, batch, lane, staging, scales, row_in_tile);
  const int rows = min(16, m - row);
  const LaneColumns columns(p, lane);
  const auto epilogue = make_epilogue<Out, float>(p, batch);
  if (kConfig.scaled && ptx::elect_one()) ptx::tma_store_wait_read<0>();  // TMA may still read the previous tile
  constexpr int kRounds = (kTileN + 63) / 64, kPieces = (kTileN < 64 ? kTileN : 64) / 8;
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
    if (column + 64 * round >= n) break;
    __syncwarp();
#pragma unroll
    for (int known = 0; known < kRounds; ++known) {  // registers have no run-time index; the code below exists once
      if (known != round) continue;
#pragma unroll
      for (int j = 0; j < kPieces; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int i = 4 * (kPieces * known + j) + 2 * h;
          if (i >= kTileN / 2) break;  // half a round
          store_vector(
              reinterpret_cast<float*>(staging + (first + 8 * h) * 256 + ((2 * j + quad / 2) ^ first) * 16 + quad % 2 * 8),
              Vector<float, 2>{{sums[i], sums[i + 1]}});
        }
    }
    __syncwarp();
    const auto place = [&](int r, int c) {
      return reinterpret_cast<const float*>(staging + r * 256 + ((c / 4) ^ (r % 8)) * 16 + c % 4 * 4);
    };
    store_rows<Out, kConfig.scaled, kConfig.scaled ? 2 : 4>(
        g, epilogue, row, rows, column + 64 * round, columns, column + g.tiles.width, batch,
        [&](int r) -> Vector<float, 2> {
          if (columns.paired) return load_vector<2>(place(r, columns.first));
          return {{*place(r, columns.first), *place(r, columns.second)}};
        },
        scales + row_in_tile, scales + kConfig.tile_m + 64 * round);
  }
}

}  // namespace xgemm::matmul::wgmma_detail
