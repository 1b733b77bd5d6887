// The layout of a warp's sums, how they are stored to C, and the addition of splits.
#pragma once
#include "device/ptx/warpgroup.cuh"
#include "device/warp.cuh"
#include "matmul/split_k/in_memory.cuh"
#include "matmul/tf32/arguments.cuh"

namespace xgemm::matmul::tf32_detail {

inline constexpr int kWarpgroupBarrier = 1;  // named barriers, one per warpgroup

/// The layout of a thread's sums: rows l / 4 and l / 4 + 8 of its warp are lines `first` and `second` of the warpgroup's 64
/// lines of x; element 4 j + 2 h + c of the sums is line 8 j + 2 (l % 4) + c of y.
template <Tf32Config kConfig>
struct Lines {
  int thread = thread_index(), lane = thread % 32, warp = thread / 32 % 4, quad = lane % 4, octet = lane / 4;
  /// The warp's 16 lines in the order of `stage`: the first line of quad i, and the line of a row.
  __device__ __forceinline__ int of_quad(int i) const {
    return kConfig.k_major_x ? 16 * warp + 4 * i : 32 * (warp / 2) + 4 * (warp % 2 * 2 + i / 2 + i % 2 * 4);
  }
  __device__ __forceinline__ int of_row(int row) const { return of_quad(row / 4) + row % 4; }
  /// The row in `stage` of the warp's row octet + 8 h. MN-major: a lane's two lines are neighbours, and half a warp's lines lie
  /// in pieces p and p + 4 of 16 bytes, so that reads of swizzled shared memory have no bank conflicts.
  __device__ __forceinline__ int row(int h) const { return kConfig.k_major_x ? octet + 8 * h : 2 * octet + h; }
  __device__ __forceinline__ int first() const { return of_row(row(0)); }
};

/// A matrix that a warpgroup's sums are stored to with alpha and bias alone: C, or its part of a split's partial sums.
struct PlainRows {
  float* to;
  std::int64_t pitch;
  int rows, columns;
  float alpha;
  const float* bias;
  std::int64_t bias_step;
};

/// Stores a warp's sums from registers, from lines x and y on: 8 bytes at a time if a lane has neighbours and rows are even, else
/// 4; a warp fills whole sectors of 32 bytes.
template <Tf32Config kConfig>
__device__ __forceinline__ void store_plain(const float (&sums)[kConfig.y() / 2], const PlainRows& c, bool swapped, int x,
                                            int y) {
  const int m = c.rows, n = c.columns;
  const Lines<kConfig> lines;
  const bool pairs = n % 2 == 0;
  const auto bias_of = [&](int col) { return c.bias ? c.bias[min(col, n - 1) * c.bias_step] : 0.f; };
  const auto result = [&](int i, float add) { return plus(scaled(c.alpha, sums[i]), add); };
  const auto store_pair = [&](float* to, int col, float first, float second) {
    if (pairs) {
      if (col < n) store_vector(to, Vector<float, 2>{{first, second}});
    } else {
      if (col < n) to[0] = first;
      if (col + 1 < n) to[1] = second;
    }
  };
  const int first = x + lines.of_row(lines.row(0)), second = x + lines.of_row(lines.row(1)), other = y + 2 * lines.quad;
  if (!swapped) {
    float *const to_first = c.to + first * c.pitch + other, *const to_second = c.to + second * c.pitch + other;
#pragma unroll
    for (int j = 0; j < kConfig.y() / 8; ++j) {
      const int col = other + 8 * j;
      const float add0 = bias_of(col), add1 = bias_of(col + 1);
      if (first < m) store_pair(to_first + 8 * j, col, result(4 * j, add0), result(4 * j + 1, add1));
      if (second < m) store_pair(to_second + 8 * j, col, result(4 * j + 2, add0), result(4 * j + 3, add1));
    }
  } else {
    const float add0 = bias_of(first), add1 = bias_of(second);
    float* to = c.to + other * c.pitch;
#pragma unroll
    for (int j = 0; j < kConfig.y() / 8; ++j, to += 8 * c.pitch) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (other + 8 * j + i >= m) break;
        if constexpr (kConfig.k_major_x) {
          if (first < n) to[i * c.pitch + first] = result(4 * j + i, add0);
          if (second < n) to[i * c.pitch + second] = result(4 * j + 2 + i, add1);
        } else {
          store_pair(to + i * c.pitch + first, first, result(4 * j + i, add0), result(4 * j + 2 + i, add1));
        }
      }
    }
  }
}

/// Stores a warp's sums with any epilogue, 32 lines of y at a time, through `stage`: 16 rows of C of 32 + 8 floats, or
/// (swapped) 32 rows of 16 + 4, so that neither writes nor reads of whole rows have bank conflicts.
template <Tf32Config kConfig>
__device__ __forceinline__ void store(const float (&sums)[kConfig.y() / 2], const Tf32Arguments& g, int x, int y, int batch,
                                      float* stage) {
  constexpr int kTurns = kConfig.y() / 32;
  const Problem& p = g.problem;
  const int lines_y = static_cast<int>(g.swapped ? p.m : p.n);
  const Lines<kConfig> lines;
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
        } else if (kConfig.k_major_x) {
#pragma unroll
          for (int i = 0; i < 4; ++i) stage[(at + i % 2) * 20 + lines.row(i / 2)] = here[i];
        } else {
          store_vector(stage + at * 20 + lines.row(0), Vector<float, 2>{{here[0], here[2]}});
          store_vector(stage + (at + 1) * 20 + lines.row(0), Vector<float, 2>{{here[1], here[3]}});
        }
      }
    }
    __syncwarp();
    store_staged<float, 128>(p, batch, lines.lane, [&](int i) {
      const int major = g.swapped ? i / 4 : i / 8, minor = g.swapped ? i % 4 : i % 8;
      return StagedQuad{stage + major * (g.swapped ? 20 : 40) + 4 * minor, g.swapped ? y + major : x + lines.of_row(major),
                        g.swapped ? x + lines.of_quad(minor) : y + 4 * minor};
    });
    __syncwarp();
  }
}

/// Adds a share of the splits of a warpgroup's part of C, which begins at lines x and y.
template <Tf32Config kConfig>
__device__ __forceinline__ void add_tile_splits(const Tf32Arguments& g, const Item<kConfig>& at, int x, int warpgroup,
                                                const PlainRows& own, MeetingShare* share) {
  constexpr int kWarpgroups = kConfig.warpgroups();
  const Problem& p = g.problem;
  const int row0 = g.swapped ? at.y : x, column0 = g.swapped ? x : at.y, quads = static_cast<int>(own.pitch) / 4,
            rows = min(own.rows, static_cast<int>(p.m) - row0), left = static_cast<int>(p.n) - column0;
  const auto e = make_epilogue<float, float>(p, at.batch);
  float* const out = static_cast<float*>(p.out) + static_cast<std::int64_t>(at.batch) * p.m * p.n;
  const std::int64_t step = kWarpgroups * own.rows * own.pitch;  // from one split's sums to the next
  const float* const first = own.to - at.split * step;
  add_splits<128, 8, 8>(
      g.meetings[at.tile * kWarpgroups + static_cast<unsigned>(warpgroup)], static_cast<int>(g.splits), true, share,
      thread_index() % 128, max(rows, 0) * quads, [&] { ptx::named_barrier_sync(kWarpgroupBarrier + warpgroup, 128); },
      [&](int unit) { return unit % quads * 4 < left ? first + unit * 4 : nullptr; }, [&](int split) { return split * step; },
      [&](int unit, const Quad<float>& sum, bool mine) {
        if (!mine) return;
        const int row = unit / quads, column = unit % quads * 4;
        store_sums(e, out, p.n, sum, row0 + row, column0 + column, left - column);
      });
}

}  // namespace xgemm::matmul::tf32_detail
