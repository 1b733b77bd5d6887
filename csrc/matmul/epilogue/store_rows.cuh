// Rows of C by ordinary stores: any epilogue, any n.
#pragma once
#include <type_traits>

#include "device/vector.cuh"
#include "matmul/epilogue/apply.cuh"
#include "matmul/fp16_split/line_scale.cuh"
#include "matmul/wgmma/arguments.cuh"

namespace xgemm::matmul::wgmma_detail {

/// The two columns of 64 that a lane stores in store_rows: neighbours if rows of C keep pairs aligned, else 32 apart, so that a
/// warp's narrow stores are adjacent.
struct LaneColumns {
  bool paired;
  int first, second;
  __device__ __forceinline__ LaneColumns(const Problem& p, int lane)
      : paired(p.n % 2 == 0), first(paired ? 2 * lane : lane), second(paired ? first + 1 : first + 32) {}
  /// Two columns of 8, as in the accumulators.
  __device__ __forceinline__ LaneColumns(const Problem& p, int quad, std::true_type)
      : paired(p.n % 2 == 0), first(2 * quad), second(first + 1) {}
};

/// Stores `rows` rows of C from `row` on, kRowStep apart, kRows at a time. `base` is the first of 64 columns; columns from
/// `column_end` on are not this warp's. `sums(r)` gives row + r's sums in this lane's columns. Scaled: `row_scales` and
/// `column_scales` are those of fill_scales() from that row and column on; if null, the lines' statistics are read.
template <class Out, bool kScaled, int kRows, int kRowStep = 1, class Sums>
__device__ __forceinline__ void store_rows(const WgmmaArguments& g, const Epilogue<Out, float>& e, int row, int rows, int base,
                                           const LaneColumns& columns, int column_end, int batch, const Sums& sums,
                                           const int* row_scales = nullptr, const int* column_scales = nullptr) {
  const Problem& p = g.problem;
  const int n = min(static_cast<int>(p.n), column_end), at = base + columns.first;
  if (at >= n) return;
  const bool both = base + columns.second < n;
  const int other = both ? base + columns.second : at;
  Out* const out = static_cast<Out*>(p.out) + static_cast<std::int64_t>(batch) * p.m * p.n;
  const LineStats* lines_a = nullptr;
  int exponents[2] = {};
  if constexpr (kScaled) {
    lines_a = g.lines_a + static_cast<std::int64_t>(batch) * g.batch_step_a * p.m;
    const LineStats* const lines_b = g.lines_b + static_cast<std::int64_t>(batch) * g.batch_step_b * p.n;
    if (row_scales) {
      exponents[0] = (column_scales[columns.first] >> 23) - 127;
      exponents[1] = (column_scales[both ? columns.second : columns.first] >> 23) - 127;
    } else {
      exponents[0] = -split_exponent(lines_b[at].max_bits);
      exponents[1] = -split_exponent(lines_b[other].max_bits);
    }
  }
  float bias[2] = {};
  if (e.bias) {
    bias[0] = convert<float>(e.bias[at * e.bias_col]);
    bias[1] = convert<float>(e.bias[other * e.bias_col]);
  }
#pragma unroll 1
  for (int r0 = 0; r0 < rows; r0 += kRows) {
    float x[2 * kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int index = min(r0 + i, rows - 1), r = kRowStep * index;
      const Vector<float, 2> here = sums(index);
      int exponent = 0;
      if constexpr (kScaled) exponent = row_scales ? (row_scales[r] >> 23) - 127 : -split_exponent(lines_a[row + r].max_bits);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float value = kScaled ? unscale(here[c], exponent + exponents[c]) : here[c];
        x[2 * i + c] = scaled(e.alpha, value);
      }
    }
    if (e.c) {
#pragma unroll
      for (int i = 0; i < 2 * kRows; ++i) {
        const std::int64_t r = row + kRowStep * min(r0 + i / 2, rows - 1), c = i % 2 ? other : at;
        x[i] = fmaf(e.beta, convert<float>(e.c[r * e.c_row + c * e.c_col]), x[i]);
      }
    }
    if (e.bias) {
#pragma unroll
      for (int i = 0; i < 2 * kRows; ++i) x[i] = plus(x[i], bias[i % 2]);
    }
    activate_all<Out>(x, e.activation);
    if (e.residual) {
#pragma unroll
      for (int i = 0; i < 2 * kRows; ++i) {
        const std::int64_t r = row + kRowStep * min(r0 + i / 2, rows - 1), c = i % 2 ? other : at;
        x[i] = plus(x[i], convert<float>(e.residual[r * e.residual_row + c * e.residual_col]));
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (r0 + i >= rows) break;
      Out* const target = out + static_cast<std::int64_t>(row + kRowStep * (r0 + i)) * p.n;
      const Vector<Out, 2> results{{convert<Out>(x[2 * i]), convert<Out>(x[2 * i + 1])}};
      if (columns.paired && both) {
        store_vector(target + at, results);
      } else {
        target[at] = results[0];
        if (both) target[other] = results[1];
      }
    }
  }
}

}  // namespace xgemm::matmul::wgmma_detail
