// The elements of C that the fp16 split cannot do (see split_fp16.cuh), in fp32 multiply-adds: launched after the tensor-core kernel,
// a CTA leaves at once when all pairs of its lines are well. Any strides. Writes only the elements that failed.
#pragma once
#include "matmul/kernels/line_scale.cuh"

namespace xgemm {

template <class Transform>
struct FullRangeArguments {
  const float *a, *b;
  std::int64_t a_row, a_k, a_batch, b_column, b_k, b_batch;  ///< strides in elements
  const LineStats *stats_a, *stats_b;
  std::int64_t stats_batch_a, stats_batch_b;
  float* out;
  std::int64_t ld, batch_stride;
  int m, n, k, batch;
  Transform transform;
};

inline constexpr int kFullRangeTile = 128;

/// Grid: tiles of 128 x 128, times batch. 256 threads of 8 x 8 elements each.
template <class Transform>
__global__ void __launch_bounds__(256) full_range_gemm(const FullRangeArguments<Transform> g) {
  constexpr int kTile = kFullRangeTile, kDepth = 8;
  __shared__ LineQuality quality[2][kTile];
  __shared__ float tile_a[kDepth][kTile + 4], tile_b[kDepth][kTile + 4];
  const int columns = (g.n + kTile - 1) / kTile, rows = (g.m + kTile - 1) / kTile;
  const int batch = static_cast<int>(blockIdx.x / (static_cast<unsigned>(rows) * columns));
  const int within = static_cast<int>(blockIdx.x) - batch * rows * columns;
  const int row = within / columns * kTile, column = within % columns * kTile;
  const int t = static_cast<int>(threadIdx.x), i = t % kTile, side = t / kTile;
  {
    const LineStats* const stats = side == 0 ? g.stats_a + batch * g.stats_batch_a + row : g.stats_b + batch * g.stats_batch_b + column;
    const bool inside = i < (side == 0 ? g.m - row : g.n - column);
    quality[side][i] = inside ? line_quality(stats[i], g.k) : LineQuality{true, 1024};
  }
  __syncthreads();
  bool bad = false;
  for (int j = side * (kTile / 2); j < (side + 1) * (kTile / 2); ++j) bad |= !pairs_well(quality[0][i], quality[1][j]);
  if (!__syncthreads_or(bad)) return;

  const float* const a = g.a + batch * g.a_batch;
  const float* const b = g.b + batch * g.b_batch;
  float sums[8][8] = {};
  const int r0 = t / 16 * 8, c0 = t % 16 * 8;
  for (int k0 = 0; k0 < g.k; k0 += kDepth) {
#pragma unroll
    for (int d = 0; d < kDepth / 2; ++d) {
      const int k = k0 + side * (kDepth / 2) + d, kk = side * (kDepth / 2) + d;
      tile_a[kk][i] = row + i < g.m && k < g.k ? a[(row + i) * g.a_row + k * g.a_k] : 0.f;
      tile_b[kk][i] = column + i < g.n && k < g.k ? b[(column + i) * g.b_column + k * g.b_k] : 0.f;
    }
    __syncthreads();
    const int depth = min(kDepth, g.k - k0);  // no zeros beyond K: 0 * Inf
#pragma unroll
    for (int kk = 0; kk < kDepth; ++kk) {
      if (kk >= depth) break;
      float x[8], y[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        x[e] = tile_a[kk][r0 + e];
        y[e] = tile_b[kk][c0 + e];
      }
#pragma unroll
      for (int p = 0; p < 8; ++p)
#pragma unroll
        for (int q = 0; q < 8; ++q) sums[p][q] = fmaf(x[p], y[q], sums[p][q]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int p = 0; p < 8; ++p) {
    if (row + r0 + p >= g.m) break;
    const auto row_state = g.transform.row(batch, row + r0 + p);
#pragma unroll
    for (int q = 0; q < 8; ++q) {
      const int at = column + c0 + q;
      if (at < g.n && !pairs_well(quality[0][r0 + p], quality[1][c0 + q]))
        g.out[batch * g.batch_stride + (row + r0 + p) * g.ld + at] =
            g.transform(sums[p][q], row_state, g.transform.column(batch, at), batch, row + r0 + p, at);
    }
  }
}

}  // namespace xgemm
