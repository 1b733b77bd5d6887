// The elements of C that the fp16 split cannot do (see split_fp16.cuh), in fp32 multiply-adds: launched after the tensor-core kernel,
// a CTA leaves at once when all pairs of its lines are well. Any strides. Writes only the elements that failed, each from a sum that
// depends on K alone: products added one after another in chunks of 256 from zero (longer from 8192 on), the chunks' sums in order.
// Floor: 2 bytes' worth of nothing where all is well (12 bytes a line and tile); else 2 M N K flop at 128 FMA a cycle and SM.
#pragma once
#include "device/vector.cuh"
#include "matmul/kernels/epilogue.cuh"
#include "matmul/kernels/line_scale.cuh"

namespace xgemm::matmul {

struct FullRangeArguments {
  Problem problem;
  const LineStats *lines_a, *lines_b;
  int batch_step_a, batch_step_b;  ///< 0: one matrix for all batches
  std::int64_t chunk;              ///< a multiple of kFullRangeDepth
};

inline constexpr int kFullRangeTile = 128;
inline constexpr int kFullRangeDepth = 16;

/// Grid: tiles of 128 x 128, times batch. 256 threads of 8 x 8 elements each, as four quads of 4 x 4.
__global__ void __launch_bounds__(256) full_range_gemm(const __grid_constant__ FullRangeArguments g) {
  constexpr int kTile = kFullRangeTile, kDepth = kFullRangeDepth, kPitch = kTile + 4, kShare = kTile * kDepth / 256;
  __shared__ LineQuality quality[2][kTile];
  __shared__ __align__(16) float tile[2][2][kDepth][kPitch];  // buffer, operand, k, line
  const Problem& p = g.problem;
  const std::int64_t columns = (p.n + kTile - 1) / kTile, rows = (p.m + kTile - 1) / kTile;
  const std::int64_t batch = blockIdx.x / (rows * columns), within = blockIdx.x - batch * rows * columns;
  const std::int64_t row = within / columns * kTile, column = within % columns * kTile;
  const int t = static_cast<int>(threadIdx.x);
  {
    const int side = t / kTile, i = t % kTile;
    const LineStats* const lines = side == 0 ? g.lines_a + batch * g.batch_step_a * p.m + row : g.lines_b + batch * g.batch_step_b * p.n + column;
    const bool inside = i < (side == 0 ? p.m - row : p.n - column);
    const LineQuality mine = inside ? line_quality(lines[i], p.k) : LineQuality{true, 1024};
    quality[side][i] = mine;
    // Most tiles: nothing to do, seen from the worst line of each side.
    if (__syncthreads_and(mine.carried)) return;
    __shared__ int worst[2];
    if (t < 2) worst[t] = 1024;
    __syncthreads();
    atomicMin(&worst[side], mine.density);
    __syncthreads();
    if (worst[0] + worst[1] >= 256 + 32) return;
    bool bad = false;
    for (int j = side * (kTile / 2); j < (side + 1) * (kTile / 2); ++j) bad |= !pairs_well(quality[0][i], quality[1][j]);
    if (!__syncthreads_or(bad)) return;
  }

  // Each thread moves kShare elements of each operand, neighbours of a warp along the contiguous direction.
  const float* sources[2];
  int line_of[2][kShare], k_of[2][kShare];
  std::int64_t line_strides[2] = {p.a.row_stride, p.b.col_stride}, k_strides[2] = {p.a.col_stride, p.b.row_stride};
  const int lines_here[2] = {static_cast<int>(min(p.m - row, std::int64_t{kTile})), static_cast<int>(min(p.n - column, std::int64_t{kTile}))};
  sources[0] = static_cast<const float*>(p.a.data) + batch_offset(p, p.a, batch) + row * line_strides[0];
  sources[1] = static_cast<const float*>(p.b.data) + batch_offset(p, p.b, batch) + column * line_strides[1];
#pragma unroll
  for (int o = 0; o < 2; ++o)
#pragma unroll
    for (int e = 0; e < kShare; ++e) {
      const int at = t + e * 256;
      const bool along_k = k_strides[o] == 1;
      line_of[o][e] = along_k ? at / kDepth : at % kTile;
      k_of[o][e] = along_k ? at % kDepth : at / kTile;
    }
  float fetched[2][kShare];
  const auto fetch = [&](std::int64_t k0, std::int64_t end) {
#pragma unroll
    for (int o = 0; o < 2; ++o)
#pragma unroll
      for (int e = 0; e < kShare; ++e) {
        const std::int64_t k = k0 + k_of[o][e];
        fetched[o][e] = line_of[o][e] < lines_here[o] && k < end ? sources[o][line_of[o][e] * line_strides[o] + k * k_strides[o]] : 0.f;
      }
  };
  const auto put = [&](int buffer) {
#pragma unroll
    for (int o = 0; o < 2; ++o)
#pragma unroll
      for (int e = 0; e < kShare; ++e) tile[buffer][o][k_of[o][e]][line_of[o][e]] = fetched[o][e];
  };

  float total[8][8] = {};
  const int r0 = t / 16 * 4, c0 = t % 16 * 4;  // and 64 further
  for (std::int64_t chunk = 0; chunk < p.k; chunk += g.chunk) {
    const std::int64_t end = min(p.k, chunk + g.chunk);
    float sums[8][8] = {};
    int buffer = 0;
    fetch(chunk, end);
    __syncthreads();
    put(0);
    __syncthreads();
    for (std::int64_t k0 = chunk; k0 < end; k0 += kDepth) {
      const bool more = k0 + kDepth < end;
      if (more) fetch(k0 + kDepth, end);
#pragma unroll
      for (int k = 0; k < kDepth; ++k) {
        float x[8], y[8];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const auto xs = load_vector<4>(&tile[buffer][0][k][r0 + 64 * h]), ys = load_vector<4>(&tile[buffer][1][k][c0 + 64 * h]);
#pragma unroll
          for (int e = 0; e < 4; ++e) x[4 * h + e] = xs[e], y[4 * h + e] = ys[e];
        }
#pragma unroll
        for (int i = 0; i < 8; ++i)
#pragma unroll
          for (int j = 0; j < 8; ++j) sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
      }
      buffer ^= 1;
      if (more) put(buffer);
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) total[i][j] += sums[i][j];
  }

  const auto epilogue = make_epilogue<float, float>(p, batch);
  float* const out = static_cast<float*>(p.out) + batch * p.m * p.n;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int r = r0 + i / 4 * 64 + i % 4;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int c = c0 + j / 4 * 64 + j % 4;
      if (r < lines_here[0] && c < lines_here[1] && !pairs_well(quality[0][r], quality[1][c]))
        out[(row + r) * p.n + column + c] = epilogue(total[i][j], row + r, column + c);
    }
  }
}

}  // namespace xgemm::matmul
