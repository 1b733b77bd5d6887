// How a warp's sums become rows of C, or a split's partial sums. Element 2 h + c of sums[i][j] is row 16 i + 8 h + lane / 4,
// column 8 j + lane % 4 * 2 + c of the warp's part of the tile.
#pragma once
#include "device/bytes16.cuh"
#include "matmul/mma/tile.cuh"
#include "matmul/split_k/in_memory.cuh"

namespace xgemm::matmul::mma_detail {

/// Calls f(row, column, pair of sums) for the lane's pairs of a warp's sums.
template <int kHigh, int kWide, class F>
__device__ __forceinline__ void each_pair(const float (&sums)[kHigh][kWide][4], int lane, const F& f) {
#pragma unroll
  for (int i = 0; i < kHigh; ++i)
#pragma unroll
    for (int j = 0; j < kWide; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        f(16 * i + 8 * h + lane / 4, 8 * j + lane % 4 * 2, Vector<float, 2>{{sums[i][j][2 * h], sums[i][j][2 * h + 1]}});
}

/// Stores a warp's part of C, which begins at (row, column), through its own shared memory `own`.
template <class T, class Shape>
struct WarpStore {
  static constexpr int kRows = Shape::kRows, kColumns = Shape::kColumns, kSize = sizeof(T);
  static constexpr int kWidth = Pack<T>::kCount, kPieces = kColumns / kWidth;  // elements of a piece of 16 bytes, pieces of a row
  static constexpr int kTurn = 32 / kPieces;                                   // rows that a warp stores at a time

  const MmaArguments& g;
  const TilePart& tile;
  const int warp_row, warp_column;
  unsigned char* const own;
  const int lane = static_cast<int>(threadIdx.x % 32);

  /// Alpha and the bias `add` alone: rounded in the registers.
  __device__ __forceinline__ void plain(const typename Shape::Sums& sums, const float (&add)[kColumns / 8][2]) const {
    constexpr int kPitch = kSize * kColumns + 16;
    const Problem& p = g.problem;
    const auto alpha = static_cast<float>(p.alpha);
    each_pair(sums, lane, [&](int r, int c, const Vector<float, 2>& sum) {
      Vector<T, 2> results;
#pragma unroll
      for (int i = 0; i < 2; ++i) results[i] = convert<T>(plus(scaled(alpha, sum[i]), add[c / 8][i]));
      store_vector(reinterpret_cast<T*>(own + r * kPitch + kSize * c), results);
    });
    const int rows = tile.rows - warp_row, columns = tile.columns - warp_column, at_row = lane / kPieces, piece = lane % kPieces;
    T* const out = static_cast<T*>(p.out) + (static_cast<std::int64_t>(tile.batch) * p.m + tile.row + warp_row) * p.n +
                   tile.column + warp_column;
    __syncwarp();
    if (p.n % kWidth == 0) {
      if (kWidth * piece >= columns) return;
      T* const to = out + at_row * p.n + kWidth * piece;
#pragma unroll
      for (int r = 0; r < kRows; r += kTurn)
        if (at_row + r < rows) *reinterpret_cast<uint4*>(to + r * p.n) = load_aligned16(own + (at_row + r) * kPitch + 16 * piece);
    } else {  // one element per lane: aligned pieces would need as many stores for their ends
      constexpr int kAcross = kColumns < 32 ? kColumns : 32;
#pragma unroll
      for (int first = 0; first < kColumns; first += kAcross) {
        const int at = first + lane % kAcross;
        if (at >= columns) return;
#pragma unroll 4
        for (int r = lane / kAcross; r < min(kRows, rows); r += 32 / kAcross)
          out[r * p.n + at] = *reinterpret_cast<const T*>(own + r * kPitch + kSize * at);
      }
    }
  }

  /// Any epilogue.
  __device__ __forceinline__ void any(const typename Shape::Sums& sums) const {
    constexpr int kPitch = Shape::kPitch;
    float* const stage = reinterpret_cast<float*>(own);
    each_pair(sums, lane, [&](int r, int c, const Vector<float, 2>& sum) { store_vector(stage + r * kPitch + c, sum); });
    __syncwarp();
    store_staged<T, kRows * kColumns / 4>(g.problem, static_cast<int>(tile.batch), lane, [&](int i) {
      const int r = i / (kColumns / 4), c = i % (kColumns / 4) * 4;
      return StagedQuad{stage + r * kPitch + c, tile.row + warp_row + r, tile.column + warp_column + c};
    });
  }
};

/// Writes a split's sums to memory and adds a share of the tile's splits (fp32).
template <class Shape>
__device__ __forceinline__ void add_tile_splits(const MmaArguments& g, const TilePart& tile, int warp_row, int warp_column,
                                                const typename Shape::Sums& sums) {
  constexpr int kTileRows = Shape::kInfo.rows, kTileColumns = Shape::kInfo.columns, kQuads = kTileColumns / 4;
  __shared__ MeetingShare share;
  const Problem& p = g.problem;
  float* const partials = g.partials + static_cast<std::int64_t>(blockIdx.x) * gridDim.y * (kTileRows * kTileColumns);
  float* const own = partials + (static_cast<int>(blockIdx.y) * kTileRows + warp_row) * kTileColumns + warp_column;
  each_pair(sums, static_cast<int>(threadIdx.x % 32), [&](int r, int c, const Vector<float, 2>& sum) {
    if (warp_row + r < tile.rows) store_vector(own + r * kTileColumns + c, sum);
  });
  const auto epilogue = make_epilogue<float, float>(p, tile.batch);
  float* const out = static_cast<float*>(p.out) + static_cast<std::int64_t>(tile.batch) * p.m * p.n;
  add_splits<Shape::kThreads, 8, 8>(
      g.meetings[blockIdx.x], static_cast<int>(gridDim.y), true, &share, static_cast<int>(threadIdx.x),
      min(kTileRows, tile.rows) * kQuads, [] { __syncthreads(); },
      [&](int unit) { return unit % kQuads * 4 < tile.columns ? partials + 4 * unit : nullptr; },
      [](int split) { return split * (kTileRows * kTileColumns); },
      [&](int unit, const Quad<float>& sum, bool mine) {
        if (!mine) return;
        const int at = unit % kQuads * 4;
        store_sums(epilogue, out, p.n, sum, tile.row + unit / kQuads, tile.column + at, tile.columns - at);
      });
}

}  // namespace xgemm::matmul::mma_detail
