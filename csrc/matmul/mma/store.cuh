// How a warp's sums become rows of C, or a split's partial sums. Element 2 h + c of sums[i][j] is row 16 i + 8 h + lane / 4,
// column 8 j + lane % 4 * 2 + c of the warp's part of the tile.
#pragma once
#include "device/bytes16.cuh"
#include "matmul/epilogue/batch.cuh"
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
class WarpStore {
  static constexpr int kRows = Shape::kRows, kColumns = Shape::kColumns, kSize = sizeof(T);
  static constexpr int kWidth = Pack<T>::kCount, kPieces = kColumns / kWidth;  // elements of a piece of 16 bytes, pieces of a row
  static constexpr int kTurn = 32 / kPieces;                                   // rows that a warp stores at a time
  const MmaArguments& g;
  const unsigned batch;
  const int row, column, rows, columns, lane, at_row, piece;  // rows, columns: left from (row, column) on
  unsigned char* const own;

  /// Stores the warp's results, which lie in rows of `pitch` bytes.
  __device__ __forceinline__ void store_results(auto pitch) const {
    const Problem& p = g.problem;
    T* const out = static_cast<T*>(p.out) + (static_cast<std::int64_t>(batch) * p.m + row) * p.n + column;
    __syncwarp();
    if (p.n % kWidth == 0) {
      if (kWidth * piece >= columns) return;
      T* const to = out + at_row * p.n + kWidth * piece;
#pragma unroll
      for (int r = 0; r < kRows; r += kTurn)
        if (at_row + r < rows) *reinterpret_cast<uint4*>(to + r * p.n) = load_aligned16(own + (at_row + r) * pitch + 16 * piece);
    } else {  // one element per lane: aligned pieces would need as many stores for their ends
      constexpr int kAcross = kColumns < 32 ? kColumns : 32;
#pragma unroll
      for (int first = 0; first < kColumns; first += kAcross) {
        const int at = first + lane % kAcross;
        if (at >= columns) return;
#pragma unroll 4
        for (int r = lane / kAcross; r < min(kRows, rows); r += 32 / kAcross)
          out[r * p.n + at] = *reinterpret_cast<const T*>(own + r * pitch + kSize * at);
      }
    }
  }

 public:
  __device__ __forceinline__ WarpStore(const MmaArguments& arguments, const TilePart& tile, int warp_row, int warp_column,
                                       int warp, unsigned char* memory)
      : g(arguments),
        batch(tile.batch),
        row(tile.row + warp_row),
        column(tile.column + warp_column),
        rows(tile.rows - warp_row),
        columns(tile.columns - warp_column),
        lane(static_cast<int>(threadIdx.x % 32)),
        at_row(lane / kPieces),
        piece(lane % kPieces),
        own(memory + warp * (Shape::kSums / Shape::kWarps)) {}

  /// Alpha and the bias `add` alone: rounded in the registers.
  __device__ __forceinline__ void plain(const typename Shape::Sums& sums, const float (&add)[kColumns / 8][2]) const {
    constexpr int kPitch = kSize * kColumns + 16;
    const auto alpha = static_cast<float>(g.problem.alpha);
    each_pair(sums, lane, [&](int r, int c, const Vector<float, 2>& sum) {
      Vector<T, 2> results;
#pragma unroll
      for (int i = 0; i < 2; ++i) results[i] = convert<T>(plus(scaled(alpha, sum[i]), add[c / 8][i]));
      store_vector(reinterpret_cast<T*>(own + r * kPitch + kSize * c), results);
    });
    store_results(std::integral_constant<int, kPitch>{});
  }

  /// Any epilogue, a piece of a row at a time.
  __device__ __forceinline__ void any(const typename Shape::Sums& sums) const {
    constexpr int kPitch = Shape::kPitch;
    const Problem& p = g.problem;
    float* const stage = reinterpret_cast<float*>(own);
    each_pair(sums, lane, [&](int r, int c, const Vector<float, 2>& sum) { store_vector(stage + r * kPitch + c, sum); });
    __syncwarp();
    auto e = make_epilogue_at<T, float>(p);
    each_batch_dim(p, batch, [&](int d, std::int64_t at) {
      if (e.c) e.c += at * p.c.batch_stride[d];
      if (e.bias) e.bias += at * p.bias.batch_stride[d];
      if (e.residual) e.residual += at * p.residual.batch_stride[d];
    });
    const int first = column + kWidth * piece, last = static_cast<int>(p.n) - 1;
#pragma unroll 1
    for (int at = at_row; at < kRows; at += kTurn) {
      float* const from = stage + at * kPitch;
      const std::int64_t r = min(row + at, static_cast<int>(p.m) - 1);
      float x[kWidth];
#pragma unroll
      for (int i = 0; i < kWidth; i += 4) {
        const Vector<float, 4> quad = load_vector<4>(from + kWidth * piece + i);
#pragma unroll
        for (int j = 0; j < 4; ++j) x[i + j] = scaled(e.alpha, quad[j]);
      }
      const auto c = [&](int i) { return std::int64_t{min(first + i, last)}; };
      apply<T>(
          x, e, [&](int i) { return e.c[r * e.c_row + c(i) * e.c_col]; }, [&](int i) { return e.bias[c(i) * e.bias_col]; },
          [&](int i) { return e.residual[r * e.residual_row + c(i) * e.residual_col]; });
      Pack<T> results;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) results.values[i] = convert<T>(x[i]);
      __syncwarp();  // the rows' sums have been read: the results overwrite them
      *reinterpret_cast<uint4*>(reinterpret_cast<unsigned char*>(from) + 16 * piece) = as_raw(results);
    }
    store_results(std::integral_constant<int, 4 * kPitch>{});
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
      [&](int unit, int split) -> const float* {
        if (unit % kQuads * 4 >= tile.columns) return nullptr;
        return partials + split * (kTileRows * kTileColumns) + 4 * unit;
      },
      [&](int unit, const Quad<float>& sum, bool mine) {
        if (!mine) return;
        const int row = tile.row + unit / kQuads, at = unit % kQuads * 4, left = tile.columns - at;
        store_row_quad(out + row * p.n + tile.column + at,
                       epilogue.template quad<float>(sum, row, tile.column + at, min(4, left)), left, p.n);
      });
}

}  // namespace xgemm::matmul::mma_detail
