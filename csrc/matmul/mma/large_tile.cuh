// The arguments of mma/large.cuh, how a CTA divides its tile, and how it stores it.
#pragma once
#include "device/tile_order.cuh"
#include "matmul/epilogue/apply.cuh"
#include "matmul/epilogue/quad.cuh"
#include "matmul/fp16_split/line_scale.cuh"
#include "matmul/mma/panels.cuh"
#include "matmul/mma/plan.h"

namespace xgemm::matmul {

/// An operand of 16-bit elements, or its copy.
struct LargeOperand {
  const void* data;
  std::int64_t ld, batch_stride, part_stride;  ///< in elements
  bool padded;                                 ///< a copy, whose rows of 16-byte pieces may be read whole
  const LineStats* lines;                      ///< of a split operand, [batch][line]
  int lines_step;                              ///< lines from batch to batch, 0: one matrix for all
};

struct LargeArguments {
  Problem problem;
  LargeOperand a, b;
  unsigned rows, columns;  ///< tiles of a batch
  int split_blocks;        ///< k-blocks of a split, which are gridDim.y
  float* partials;         ///< sums of splits, [split][batch][m][n]: simt_finish adds them
};

namespace large_detail {

/// As mma_detail::Reader, by one offset: the swizzle of a step, or of 16 lines, flips bits of another's, as a warp's lines begin
/// at multiples of 32.
template <class Panel, bool kAlongK, bool kLinesFirst>
struct LargeReader {
  int offset;
  __device__ __forceinline__ LargeReader(int line, int lane) {
    const int matrix = lane / 8, upper_line = kLinesFirst ? matrix % 2 : matrix / 2,
              upper_k = kLinesFirst ? matrix / 2 : matrix % 2;
    offset = kAlongK ? Panel::place(line + 8 * upper_line + lane % 8, upper_k)
                     : Panel::place(8 * upper_k + lane % 8, line / 8 + upper_line);
  }
  __device__ __forceinline__ void read(std::uint32_t (&r)[4], const unsigned char* panel, int fragment, int step) const {
    if constexpr (kAlongK)
      ptx::ldmatrix(r, panel + (offset ^ 32 * step) + fragment * 16 * Panel::kRow);
    else
      ptx::ldmatrix_transposed(r, panel + (offset ^ 32 * fragment) + step * 16 * Panel::kRow);
  }
};

template <LargeTile kTile, int kPartsOfOperand, bool kAlongKA, bool kAlongKB>
struct LargeShape {
  static constexpr MmaGeometry kInfo = geometry(kTile);
  static constexpr int kBlockK = info(kTile).k, kSteps = kBlockK / 16;  ///< of a k-block: k, and products of 16 k
  static constexpr int kParts = kPartsOfOperand, kThreads = kInfo.threads(), kWarps = kThreads / 32;
  static constexpr int kRows = kInfo.rows / kInfo.warps_rows, kColumns = kInfo.columns / kInfo.warps_columns;  // of a warp
  template <bool kAlongK, int kLines>
  using PanelOf = mma_detail::Panel<half, kLines, kAlongK, kThreads, false, 2 * kBlockK>;
  using A = PanelOf<kAlongKA, kInfo.rows>;
  using B = PanelOf<kAlongKB, kInfo.columns>;
  using ReaderA = LargeReader<A, kAlongKA, true>;
  using ReaderB = LargeReader<B, kAlongKB, false>;
  static constexpr int kSlot = kParts * (A::kBytes + B::kBytes);
  static_assert(kSlot == large_slot_bytes(kTile, kParts));
  using Sums = float[kRows / 16][kColumns / 8][4];
  static constexpr int kPitch = kColumns + 4, kStaging = 4 * 16 * kPitch;  // of a warp: floats of a row, bytes of 16 rows
  static_assert(kWarps * kStaging <= kInfo.slots * kSlot);
};

/// A CTA's tile, or a split of it, and its warp's part.
template <class Shape>
struct LargePart {
  const LargeArguments& g;
  int warp;
  TilePlace place = tile_at<8>(blockIdx.x, g.rows, g.columns);
  unsigned batch = place.batch;
  int row = static_cast<int>(place.row) * Shape::kInfo.rows, column = static_cast<int>(place.column) * Shape::kInfo.columns;
  int rows = static_cast<int>(g.problem.m) - row, columns = static_cast<int>(g.problem.n) - column;  ///< from there on
  std::int64_t first_k = static_cast<std::int64_t>(blockIdx.y) * g.split_blocks * Shape::kBlockK;
  int depth = static_cast<int>(min(g.problem.k - first_k, std::int64_t{g.split_blocks} * Shape::kBlockK));
  int warp_row = warp / Shape::kInfo.warps_columns * Shape::kRows,
      warp_column = warp % Shape::kInfo.warps_columns * Shape::kColumns;
};

/// Undoes the scales of a split operand's lines.
template <class Shape>
__device__ __forceinline__ void unscale_sums(const LargeArguments& g, const LargePart<Shape>& tile, typename Shape::Sums& sums,
                                             int lane) {
  constexpr int kHigh = Shape::kRows / 16, kWide = Shape::kColumns / 8;
  const auto exponent = [&](const LargeOperand& x, int line, std::int64_t count) {
    const auto at = static_cast<std::int64_t>(tile.batch) * x.lines_step + min(static_cast<std::int64_t>(line), count - 1);
    return -split_exponent(x.lines[at].max_bits);
  };
  int of_rows[kHigh][2];
#pragma unroll
  for (int i = 0; i < kHigh; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) of_rows[i][h] = exponent(g.a, tile.row + tile.warp_row + 16 * i + 8 * h + lane / 4, g.problem.m);
#pragma unroll
  for (int j = 0; j < kWide; ++j)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int of_column = exponent(g.b, tile.column + tile.warp_column + 8 * j + lane % 4 * 2 + c, g.problem.n);
#pragma unroll
      for (int i = 0; i < kHigh; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) sums[i][j][2 * h + c] = unscale(sums[i][j][2 * h + c], of_rows[i][h] + of_column);
    }
}

/// The epilogue of 8 sums, whose operands are of T, or of fp32 (`fp32`) where the operands of the product were: at run time,
/// since a copy of this code for each type would be most of the kernel.
template <class T>
struct LargeEpilogue {
  const Problem& p;
  const bool fp32;
  const void *const c = p.c.data, *const bias = p.bias.data, *const residual = p.residual.data;
  const float beta = static_cast<float>(p.beta);
  std::int64_t c_batch = 0, bias_batch = 0, residual_batch = 0, factor_batch;  ///< where the batch begins, in elements
  __device__ __forceinline__ LargeEpilogue(const Problem& problem, bool of_fp32, unsigned batch)
      : p(problem), fp32(of_fp32), factor_batch(batch * problem.m * problem.n) {
    each_batch_dim(p, batch, [&](int d, std::int64_t at) {
      c_batch += at * p.c.batch_stride[d], bias_batch += at * p.bias.batch_stride[d];
      residual_batch += at * p.residual.batch_stride[d];
    });
  }
  __device__ __forceinline__ float load(const void* data, std::int64_t at) const {
    return fp32 ? static_cast<const float*>(data)[at] : convert<float>(static_cast<const T*>(data)[at]);
  }
  /// Of (row(i), col(i)), which are in bounds.
  template <class Row, class Col>
  __device__ __forceinline__ void operator()(float (&x)[8], const Row& row, const Col& col) const {
    const auto alpha = static_cast<float>(p.alpha);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = scaled(alpha, x[i]);
    apply(
        x, *this, [&](float(&sums)[8]) { fp32 ? activate_all<float>(sums, p.activation) : activate_all<T>(sums, p.activation); },
        [&](int i) { return load(c, c_batch + row(i) * p.c.row_stride + col(i) * p.c.col_stride); },
        [&](int i) { return load(bias, bias_batch + col(i) * p.bias.col_stride); },
        [&](int i) { return load(residual, residual_batch + row(i) * p.residual.row_stride + col(i) * p.residual.col_stride); });
    if (p.factor) {
#pragma unroll
      for (int i = 0; i < 8; ++i)
        x[i] = fmaf(x[i], static_cast<const float*>(p.factor)[factor_batch + row(i) * p.n + col(i)], 0.f);
    }
  }
};

/// Stores a warp's sums, 16 rows at a time through its shared memory `own`: to C, or those of a split as they are.
template <class T, class Shape>
__device__ __forceinline__ void store_large(const LargeArguments& g, const LargePart<Shape>& tile, typename Shape::Sums& sums,
                                            unsigned char* own) {
  constexpr int kPitch = Shape::kPitch, kQuads = Shape::kColumns / 4;
  const Problem& p = g.problem;
  const int lane = static_cast<int>(threadIdx.x % 32), m = static_cast<int>(p.m), n = static_cast<int>(p.n);
  const bool fp32 = Shape::kParts == 2 || (std::is_same_v<T, half> && g.a.lines != nullptr), split = gridDim.y > 1,
             wide = split || fp32 || p.wide_out;
  if (fp32) unscale_sums<Shape>(g, tile, sums, lane);
  const LargeEpilogue<T> epilogue(p, fp32, tile.batch);
  const std::int64_t matrix = (split ? blockIdx.y * p.batches + tile.batch : tile.batch) * p.m * p.n;
  void* const out = split ? g.partials : p.out;
  float* const stage = reinterpret_cast<float*>(own);
#pragma unroll 1
  for (int slab = 0; slab < Shape::kRows / 16; ++slab) {
    const int first = tile.row + tile.warp_row + 16 * slab;
    if (first >= m) return;
#pragma unroll
    for (int i = 0; i < Shape::kRows / 16; ++i) {  // registers have no index; one copy of what follows
      if (i != slab) continue;
#pragma unroll
      for (int j = 0; j < Shape::kColumns / 8; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          store_vector(stage + (8 * h + lane / 4) * kPitch + 8 * j + lane % 4 * 2,
                       Vector<float, 2>{{sums[i][j][2 * h], sums[i][j][2 * h + 1]}});
    }
    __syncwarp();
#pragma unroll 1
    for (int q = lane; q < 16 * kQuads; q += 64) {  // two quads a lane: their chains of instructions overlap
      const auto row_of = [&](int of) { return (q + 32 * of) / kQuads; };
      const auto column_of = [&](int of) { return (q + 32 * of) % kQuads * 4; };
      const auto row = [&](int v) { return std::int64_t{min(first + row_of(v / 4), m - 1)}; };
      const auto col = [&](int v) { return std::int64_t{min(tile.column + tile.warp_column + column_of(v / 4) + v % 4, n - 1)}; };
      float x[8];
#pragma unroll
      for (int of = 0; of < 2; ++of) {
        const auto quad = load_quad(stage + row_of(of) * kPitch + column_of(of));
#pragma unroll
        for (int v = 0; v < 4; ++v) x[4 * of + v] = quad.v[v];
      }
      if (!split) epilogue(x, row, col);
#pragma unroll
      for (int of = 0; of < 2; ++of) {
        const int at_row = first + row_of(of), column = tile.column + tile.warp_column + column_of(of);
        if (at_row >= m || column >= n) continue;
        const std::int64_t at = matrix + at_row * p.n + column;
        if (wide) {
          store_row_quad(static_cast<float*>(out) + at, Quad<float>{{x[4 * of], x[4 * of + 1], x[4 * of + 2], x[4 * of + 3]}},
                         n - column, p.n);
        } else {
          Quad<T> results;
#pragma unroll
          for (int v = 0; v < 4; ++v) results.v[v] = convert<T>(x[4 * of + v]);
          store_row_quad(static_cast<T*>(out) + at, results, n - column, p.n);
        }
      }
    }
    __syncwarp();
  }
}

}  // namespace large_detail
}  // namespace xgemm::matmul
