// fp64: stores of a warp's sums, from the registers or through shared memory.
#pragma once
#include <type_traits>

#include "device/vector.cuh"
#include "device/warp.cuh"
#include "matmul/epilogue/apply.cuh"
#include "matmul/fp64_mma/tile.cuh"

namespace xgemm::matmul::fp64_detail {

/// Stores the warp's sums to rows of n from the registers: a segment's to the workspace, or C's if the epilogue is only alpha
/// and bias.
template <class Shape, bool kPartial>
__device__ __forceinline__ void store_plain(const typename Shape::Sums& sums, const Fp64Arguments& g, int segment) {
  const Problem& p = g.problem;
  const Item<Shape> item(g);
  const int thread = thread_index(), lane = thread % 32;
  const int row = item.row + Shape::warp_row(thread / 32) + lane / 4,
            column = item.column + Shape::warp_column(thread / 32) + lane % 4 * 2;
  const int rows = static_cast<int>(p.m) - row, columns = static_cast<int>(p.n) - column;
  double* const to = (kPartial ? g.partial : static_cast<double*>(p.out)) +
                     (((kPartial ? segment * p.batches : 0) + item.batch) * p.m + row) * p.n + column;
  const double* const bias =
      kPartial || !p.bias.data ? nullptr : static_cast<const double*>(p.bias.data) + batch_offset(p, p.bias, item.batch);
  const auto all = [&](auto pairs) {
#pragma unroll
    for (int j = 0; j < Shape::kWide; ++j) {
      const int left = columns - 8 * j;
      const double add[2] = {bias && left > 0 ? bias[(column + 8 * j) * p.bias.col_stride] : -0.,
                             bias && left > 1 ? bias[(column + 8 * j + 1) * p.bias.col_stride] : -0.};
#pragma unroll
      for (int i = 0; i < Shape::kHigh; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          double* const at = to + (16 * i + 8 * h) * p.n + 8 * j;
          const bool exists = 16 * i + 8 * h < rows;
          double x[2];
#pragma unroll
          for (int c = 0; c < 2; ++c)
            x[c] = kPartial ? sums[i][j][2 * h + c] : plus(scaled(p.alpha, sums[i][j][2 * h + c]), add[c]);
          if constexpr (pairs) {
            if (exists && left > 0) store_vector(at, Vector<double, 2>{{x[0], x[1]}});
          } else {
            if (exists && left > 0) at[0] = x[0];
            if (exists && left > 1) at[1] = x[1];
          }
        }
    }
  };
  // Is a pair an aligned access? The base is the allocator's.
  p.n % 2 == 0 ? all(std::true_type{}) : all(std::false_type{});
}

/// Stores the warp's sums to C through its own part of `stages`.
template <class Shape>
__device__ __forceinline__ void store(const typename Shape::Sums& sums, const Fp64Arguments& g, double* stages) {
  constexpr int kColumns = Shape::kColumns, kTurn = Shape::kTurn;
  const Problem& p = g.problem;
  const Item<Shape> item(g);
  const int thread = thread_index(), lane = thread % 32;
  const int row0 = item.row + Shape::warp_row(thread / 32), column0 = item.column + Shape::warp_column(thread / 32);
  double* const stage = stages + thread / 32 * Shape::kStage;
  const auto e = make_epilogue<double, double>(p, item.batch);
  double* const out = static_cast<double*>(p.out) + item.batch * p.m * p.n;
  const int last_row = static_cast<int>(p.m) - 1, last_column = static_cast<int>(p.n) - 1;
  const bool pairs = p.n % 2 == 0;  // neighbours in a row are an aligned access: the base is the allocator's
  const auto place = [](int row, int column) { return row * kColumns + ((column / 2) ^ (row % 2 * 4)) * 2 + column % 2; };
#pragma unroll 1
  for (int turn = 0; turn < Shape::kHigh; turn += kTurn) {
    if (row0 + 16 * turn > last_row) break;
    each_pair<Shape>([&](int i, int j, int h) {  // registers have no run-time index; the code below exists once
      if (i / kTurn * kTurn == turn)
        store_vector(stage + place(i % kTurn * 16 + lane / 4 + 8 * h, 8 * j + lane % 4 * 2),
                     Vector<double, 2>{{sums[i][j][2 * h], sums[i][j][2 * h + 1]}});
    });
    __syncwarp();
#pragma unroll 1
    for (int at = lane; at < kTurn * 8 * kColumns; at += 32) {
      // Two elements per lane: neighbours in a row, or in a column if rows of C are unaligned.
      const int r = pairs ? at / (kColumns / 2) : at / kColumns * 2, c = pairs ? at % (kColumns / 2) * 2 : at % kColumns;
      const int down = pairs ? 0 : 1, right = 1 - down;
      const int row = row0 + 16 * turn + r, column = column0 + c;
      const std::int64_t rows[2] = {min(row, last_row), min(row + down, last_row)};
      const std::int64_t columns[2] = {min(column, last_column), min(column + right, last_column)};
      double x[2] = {stage[place(r, c)], stage[place(r + down, c + right)]};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        x[i] = scaled(e.alpha, x[i]);
        if (e.c) x[i] = fma(e.beta, e.c[rows[i] * e.c_row + columns[i] * e.c_col], x[i]);
        if (e.bias) x[i] = plus(x[i], e.bias[columns[i] * e.bias_col]);
      }
      activate_all<double>(x, e.activation);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (e.residual) x[i] = plus(x[i], e.residual[rows[i] * e.residual_row + columns[i] * e.residual_col]);
        if (e.factor) x[i] = fma(x[i], e.factor[rows[i] * e.factor_row + columns[i]], 0.);
      }
      if (row > last_row || column > last_column) continue;
      double* const to = out + row * p.n + column;
      if (pairs) {
        store_vector(to, Vector<double, 2>{{x[0], x[1]}});
      } else {
        to[0] = x[0];
        if (row < last_row) to[p.n] = x[1];
      }
    }
    __syncwarp();
  }
}

}  // namespace xgemm::matmul::fp64_detail
