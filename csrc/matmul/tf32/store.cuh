// The layout of a warp's sums and how they are stored to C.
#pragma once
#include "device/warp.cuh"
#include "matmul/epilogue/quad.cuh"
#include "matmul/tf32/arguments.cuh"

namespace xgemm::matmul::tf32_detail {

/// The layout of a thread's sums: rows l / 4 and l / 4 + 8 of its warp are lines `first` and `second` of the warpgroup's 64
/// lines of x; element 4 j + 2 h + c of the sums is line 8 j + 2 (l % 4) + c of y.
template <class Config>
struct Lines {
  static constexpr bool kKMajor = Config::kValue.k_major_x;
  int lane, warp, quad, octet;
  __device__ __forceinline__ Lines() {
    const int thread = thread_index();
    lane = thread % 32, warp = thread / 32 % 4, quad = lane % 4, octet = lane / 4;
  }
  /// The warp's 16 lines in the order of `stage`: the first line of quad i, and the line of a row.
  __device__ __forceinline__ int of_quad(int i) const {
    return kKMajor ? 16 * warp + 4 * i : 32 * (warp / 2) + 4 * (warp % 2 * 2 + i / 2 + i % 2 * 4);
  }
  __device__ __forceinline__ int of_row(int row) const { return of_quad(row / 4) + row % 4; }
  /// The row in `stage` of the warp's row octet + 8 h. MN-major: a lane's two lines are neighbours, and half a warp's lines lie
  /// in pieces p and p + 4 of 16 bytes, so that reads of swizzled shared memory have no bank conflicts.
  __device__ __forceinline__ int row(int h) const { return kKMajor ? octet + 8 * h : 2 * octet + h; }
  __device__ __forceinline__ int first() const { return of_row(row(0)); }
};

/// Stores a warp's sums from registers, with alpha and bias alone: 8 bytes at a time if a lane has neighbours and n is even,
/// else 4; a warp fills whole sectors of 32 bytes.
template <class Config>
__device__ __forceinline__ void store_plain(const float (&sums)[Config::kValue.y() / 2], const Tf32Arguments& g, int x, int y,
                                            int batch) {
  const Problem& p = g.problem;
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n);
  const Lines<Config> lines;
  const float alpha = static_cast<float>(p.alpha);
  const bool pairs = n % 2 == 0;
  float* const out = static_cast<float*>(p.out) + static_cast<std::int64_t>(batch) * m * p.n;
  const float* const bias = static_cast<const float*>(p.bias.data);
  const auto bias_of = [&](int col) { return bias ? bias[min(col, n - 1) * p.bias.col_stride] : 0.f; };
  const auto result = [&](int i, float add) { return plus(fmaf(alpha, sums[i], 0.f), add); };  // + 0: see scaled()
  const auto store_pair = [&](float* to, int col, float first, float second) {
    if (pairs) {
      if (col < n) store_vector(to, Vector<float, 2>{{first, second}});
    } else {
      if (col < n) to[0] = first;
      if (col + 1 < n) to[1] = second;
    }
  };
  if (!g.swapped) {
    const int col = y + 2 * lines.quad, first = x + lines.of_row(lines.row(0)), second = x + lines.of_row(lines.row(1));
    float* const to_first = out + static_cast<std::int64_t>(first) * p.n + col;
    float* const to_second = out + static_cast<std::int64_t>(second) * p.n + col;
#pragma unroll
    for (int j = 0; j < Config::kValue.y() / 8; ++j) {
      const float add0 = bias_of(col + 8 * j), add1 = bias_of(col + 8 * j + 1);
      if (first < m) store_pair(to_first + 8 * j, col + 8 * j, result(4 * j, add0), result(4 * j + 1, add1));
      if (second < m) store_pair(to_second + 8 * j, col + 8 * j, result(4 * j + 2, add0), result(4 * j + 3, add1));
    }
  } else {
    const int row = y + 2 * lines.quad, first = x + lines.of_row(lines.row(0)), second = x + lines.of_row(lines.row(1));
    const float add0 = bias_of(first), add1 = bias_of(second);
    float* to = out + static_cast<std::int64_t>(row) * p.n;
#pragma unroll
    for (int j = 0; j < Config::kValue.y() / 8; ++j, to += 8 * p.n) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if (row + 8 * j + c >= m) break;
        if constexpr (Config::kValue.k_major_x) {
          if (first < n) to[c * p.n + first] = result(4 * j + c, add0);
          if (second < n) to[c * p.n + second] = result(4 * j + 2 + c, add1);
        } else {
          store_pair(to + c * p.n + first, first, result(4 * j + c, add0), result(4 * j + 2 + c, add1));
        }
      }
    }
  }
}

/// Stores a warp's sums with any epilogue, 32 lines of y at a time, through `stage`: 16 rows of C of 32 + 8 floats, or
/// (swapped) 32 rows of 16 + 4, so that neither writes nor reads of whole rows have bank conflicts.
template <class Config>
__device__ __forceinline__ void store(const float (&sums)[Config::kValue.y() / 2], const Tf32Arguments& g, int x, int y,
                                      int batch, float* stage) {
  constexpr int kTurns = Config::kValue.y() / 32;
  const Problem& p = g.problem;
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), lines_y = g.swapped ? m : n;
  const Lines<Config> lines;
  float* const out = static_cast<float*>(p.out) + static_cast<std::int64_t>(batch) * m * p.n;
  const auto e = make_epilogue<float, float>(p, batch);
#pragma unroll 1
  for (int turn = 0; turn < kTurns; ++turn, y += 32) {
    if (y >= lines_y) break;
#pragma unroll
    for (int known = 0; known < kTurns; ++known) {  // registers have no run-time index; the code below exists once
      if (known != turn) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* const here = sums + 16 * known + 4 * j;
        const int at = 8 * j + 2 * lines.quad;
        if (!g.swapped) {
          store_vector(stage + lines.row(0) * 40 + at, Vector<float, 2>{{here[0], here[1]}});
          store_vector(stage + lines.row(1) * 40 + at, Vector<float, 2>{{here[2], here[3]}});
        } else if (Config::kValue.k_major_x) {
#pragma unroll
          for (int i = 0; i < 4; ++i) stage[(at + i % 2) * 20 + lines.row(i / 2)] = here[i];
        } else {
          store_vector(stage + at * 20 + lines.row(0), Vector<float, 2>{{here[0], here[2]}});
          store_vector(stage + (at + 1) * 20 + lines.row(0), Vector<float, 2>{{here[1], here[3]}});
        }
      }
    }
    __syncwarp();
#pragma unroll 1
    for (int i = lines.lane; i < 128; i += 64) {  // two quads a lane: their chains of instructions overlap
      float values[8];
      std::int64_t row[2], col[2];
      int count[2];
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        const int at = i + 32 * q, major = g.swapped ? at / 4 : at / 8, minor = g.swapped ? at % 4 : at % 8;
        row[q] = g.swapped ? y + major : x + lines.of_row(major), col[q] = g.swapped ? x + lines.of_quad(minor) : y + 4 * minor;
        count[q] = row[q] < m ? n - static_cast<int>(col[q]) : 0;
        row[q] = min(row[q], p.m - 1), col[q] = min(col[q], p.n - 1);
        const auto sum = load_vector<4>(stage + major * (g.swapped ? 20 : 40) + 4 * minor);
#pragma unroll
        for (int j = 0; j < 4; ++j) values[4 * q + j] = fmaf(e.alpha, sum[j], 0.f);  // + 0: see scaled()
      }
      const auto column = [&](int v) { return min(col[v / 4] + v % 4, p.n - 1); };
      apply<float>(
          values, e, [&](int v) { return e.c[row[v / 4] * e.c_row + column(v) * e.c_col]; },
          [&](int v) { return e.bias[column(v) * e.bias_col]; },
          [&](int v) { return e.residual[row[v / 4] * e.residual_row + column(v) * e.residual_col]; });
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        if (count[q] <= 0) continue;
        store_row_quad(out + row[q] * p.n + col[q],
                       Quad<float>{{values[4 * q], values[4 * q + 1], values[4 * q + 2], values[4 * q + 3]}}, count[q], p.n);
      }
    }
    __syncwarp();
  }
}

}  // namespace xgemm::matmul::tf32_detail
