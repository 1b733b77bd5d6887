// From the accumulators of a wgmma warp to memory: transform, convert, store. A transform sees each element once:
//   Row row(batch, row), Column column(batch, column)            what it needs of a row or column, read once
//   float operator()(float sum, Row, Column, batch, row, column) called for elements inside C only
// The element's place does not change what a transform computes, so a row's bits do not depend on the tile it lies in.
#pragma once
#include <cstdint>

#include "device/numeric.cuh"
#include "device/vector.cuh"

namespace xgemm {

struct NoTransform {
  struct Nothing {};
  __device__ __forceinline__ Nothing row(int, int) const { return {}; }
  __device__ __forceinline__ Nothing column(int, int) const { return {}; }
  __device__ __forceinline__ float operator()(float sum, Nothing, Nothing, int, int, int) const { return sum; }
};

namespace wgmma_detail {

/// Transposes a 4 x 4 matrix of words held by four neighbouring lanes: afterwards lane q has in w[s] what lane s had in v[q].
__device__ __forceinline__ void transpose_quad(std::uint32_t (&v)[4], int lane) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffffu, lane & 1 ? v[i] : v[i + 1], 1);
    (lane & 1 ? v[i] : v[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffffu, lane & 2 ? v[i] : v[i + 2], 2);
    (lane & 2 ? v[i] : v[i + 2]) = got;
  }
}

}  // namespace wgmma_detail

/// Row-major C of float, half or bf16, any leading dim. `vectors`: rows start at multiples of 16 bytes.
template <class Out, class Transform>
struct StoreEpilogue {
  Out* out;
  std::int64_t ld, batch_stride;
  bool vectors;
  Transform transform;

  /// `row` is the first of the warp's 16 rows, `column` the first of the tile's kTileN columns.
  template <int kTileN>
  __device__ __forceinline__ void store(const float (&sums)[kTileN / 2], int row, int column, int batch, int lane, int m,
                                        int n) const {
    constexpr int kBlocks = sizeof(Out) == 4 ? 1 : 4;  // blocks of 8 columns that a quad of lanes stores together
    const int quad = lane % 4;
    const int rows[2] = {row + lane / 4, row + lane / 4 + 8};
    const decltype(transform.row(0, 0)) row_states[2] = {transform.row(batch, min(rows[0], m - 1)),
                                                         transform.row(batch, min(rows[1], m - 1))};
    Out* const base = out + batch * batch_stride;
#pragma unroll
    for (int j = 0; j < kTileN / 8; j += kBlocks) {
      if (column + 8 * j >= n) break;
      float values[2][kBlocks][2];
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int at = column + 8 * (j + b) + 2 * quad + c;
          const auto column_state = transform.column(batch, min(at, n - 1));
#pragma unroll
          for (int h = 0; h < 2; ++h)
            values[h][b][c] = rows[h] < m && at < n ? transform(sums[4 * (j + b) + 2 * h + c], row_states[h], column_state, batch,
                                                                rows[h], at)
                                                    : 0.f;
        }
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        constexpr int kWidth = 2 * kBlocks;  // elements a lane stores: 8 bytes of float, 16 of the half types
        Vector<Out, kWidth> piece;
        int at;
        if constexpr (kBlocks == 1) {
          at = column + 8 * j + 2 * quad;
          piece[0] = convert<Out>(values[h][0][0]);
          piece[1] = convert<Out>(values[h][0][1]);
        } else {
          alignas(16) std::uint32_t words[4];
#pragma unroll
          for (int b = 0; b < 4; ++b) {
            Out* const pair = reinterpret_cast<Out*>(&words[b]);
            pair[0] = convert<Out>(values[h][b][0]);
            pair[1] = convert<Out>(values[h][b][1]);
          }
          wgmma_detail::transpose_quad(words, lane);
          at = column + 8 * (j + quad);
          piece = reinterpret_cast<const decltype(piece)&>(words);
        }
        if (rows[h] >= m) continue;
        Out* const target = base + rows[h] * ld + at;
        if (vectors && at + kWidth <= n) {
          store_vector(target, piece);
        } else {
#pragma unroll
          for (int c = 0; c < kWidth; ++c)
            if (at + c < n) target[c] = piece[c];
        }
      }
    }
  }
};

}  // namespace xgemm
