// From the accumulators of a wgmma warp to memory, through 4 KiB of shared memory of the warp's own. Two ways, equal in every bit:
//   boxes  alpha and bias only, rows of C at multiples of 16 bytes: converted, written swizzled to one of two 2 KiB buffers (16 rows of
//          128 bytes), stored by TMA, which clips the edges, while the warp goes on;
//   rows   any epilogue, any n: fp32 through 16 rows of 64 columns; then a row at a time, two columns a lane, so that C, residual and
//          out are accessed in whole lines and the epilogue's code stands in a short loop.
#pragma once
#include "device/ptx/tma.cuh"
#include "device/vector.cuh"
#include "matmul/kernels/epilogue.cuh"

namespace xgemm::matmul::wgmma_detail {

/// `row` is the first of the warp's 16 rows, `column` the first of the tile's kTileN columns; `staging` 4 KiB, a multiple of 1024.
template <class Out, bool kScaled, int kTileN>
__device__ __forceinline__ void store_tile(const float (&sums)[kTileN / 2], const WgmmaArguments& g, int row, int column, int batch,
                                           int lane, unsigned char* staging) {
  const Problem& p = g.problem;
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n);
  if (row >= m) return;
  const int quad = lane % 4, first = lane / 4;  // the lane's columns 2 quad, 2 quad + 1 of each 8; its rows first, first + 8
  int exponents[2] = {};
  const LineStats* lines_b = nullptr;
  if constexpr (kScaled) {
    const LineStats* const lines_a = g.lines_a + static_cast<std::int64_t>(batch) * g.batch_step_a * m;
    lines_b = g.lines_b + static_cast<std::int64_t>(batch) * g.batch_step_b * n;
#pragma unroll
    for (int h = 0; h < 2; ++h) exponents[h] = -split_exponent(__ldg(&lines_a[min(row + first + 8 * h, m - 1)].max_bits));
  }
  // The pair of columns 8 j + 2 quad, rows `first` and `first` + 8, with the scales taken out.
  const auto pairs = [&](int j, float(&values)[2][2]) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      int exponent = 0;
      if constexpr (kScaled) exponent = -split_exponent(lines_b[min(column + 8 * j + 2 * quad + c, n - 1)].max_bits);  // no __ldg: it would be hoisted and spill
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        values[h][c] = sums[4 * j + 2 * h + c] + 0.f;  // -0 to +0, as the sums of chunks have it
        if constexpr (kScaled) {
          // Two factors, as one can be out of range; only the last product can be denormal, so there is one rounding.
          const int e = max(exponents[h] + exponent, -252), half_e = e / 2;
          values[h][c] = values[h][c] * power_of_two(half_e) * power_of_two(e - half_e);
        }
      }
    }
  };
  const float alpha = static_cast<float>(p.alpha);
  if (g.boxes) {
    constexpr int kColumns = 128 / static_cast<int>(sizeof(Out)), kPairs = kColumns / 8;
    const Out* const bias = static_cast<const Out*>(p.bias.data);
#pragma unroll
    for (int round = 0; round < kTileN / kColumns; ++round) {
      const int at = column + round * kColumns;
      if (at >= n) break;
      unsigned char* const buffer = staging + round % 2 * 2048;
      if (lane == 0) ptx::tma_store_wait_read<1>();  // the store before the last, which read this buffer
      __syncwarp();
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        float values[2][2], add[2] = {};
        pairs(round * kPairs + j, values);
        if (bias) {
#pragma unroll
          for (int c = 0; c < 2; ++c) add[c] = convert<float>(bias[min(at + 8 * j + 2 * quad + c, n - 1) * p.bias.col_stride]);
        }
        // 16-byte piece and place in it; pieces of row r are permuted by r % 8, as TMA's 128-byte swizzle does.
        const int offset = (8 * j + 2 * quad) * static_cast<int>(sizeof(Out));
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          Vector<Out, 2> pair;
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            float x = alpha * values[h][c];
            if (bias) x += add[c];
            pair[c] = convert<Out>(x);
          }
          store_vector(reinterpret_cast<Out*>(buffer + (first + 8 * h) * 128 + ((offset / 16) ^ first) * 16 + offset % 16), pair);
        }
      }
      ptx::fence_async_shared();
      __syncwarp();
      if (lane == 0) {
        ptx::tma_store(&g.out, buffer, at, row, batch);
        ptx::tma_store_commit();
      }
    }
    return;
  }
  const auto epilogue = make_epilogue<Out, float>(p, batch);
  Out* const out = static_cast<Out*>(p.out) + static_cast<std::int64_t>(batch) * p.m * p.n;
  const int rows = min(16, m - row);
#pragma unroll
  for (int round = 0; round < kTileN / 64; ++round) {
    if (column + 64 * round >= n) break;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float values[2][2];
      pairs(8 * round + j, values);
#pragma unroll
      for (int h = 0; h < 2; ++h)
        store_vector(reinterpret_cast<float*>(staging + (first + 8 * h) * 256 + ((2 * j + quad / 2) ^ first) * 16 + quad % 2 * 8),
                     Vector<float, 2>{{values[h][0], values[h][1]}});
    }
    __syncwarp();
    const int at = column + 64 * round + 2 * lane;
#pragma unroll 2
    for (int r = 0; r < rows; ++r) {
      const auto pair = load_vector<2>(reinterpret_cast<const float*>(staging + r * 256 + ((lane / 2) ^ (r % 8)) * 16 + lane % 2 * 8));
      Out* const target = out + (row + r) * p.n + at;
      if (at + 1 < n) {
        const Vector<Out, 2> results{{epilogue(pair[0], row + r, at), epilogue(pair[1], row + r, at + 1)}};
        if (n % 2 == 0) {
          store_vector(target, results);
        } else {
          target[0] = results[0];
          target[1] = results[1];
        }
      } else if (at < n) {
        target[0] = epilogue(pair[0], row + r, at);
      }
    }
  }
}

}  // namespace xgemm::matmul::wgmma_detail
