// How a warp's sums become rows of C, or a split's partial sums. Element 2 h + c of sums[i][j] is row 16 i + 8 h + lane / 4,
// column 8 j + lane % 4 * 2 + c of the warp's part of the tile.
#pragma once
#include "matmul/epilogue/quad.cuh"
#include "matmul/mma/tile.cuh"

namespace xgemm::matmul::mma_detail {

/// Undoes the scales of a split operand's lines.
template <class Shape>
__device__ __forceinline__ void unscale_sums(const MmaArguments& g, const TilePart& tile, typename Shape::Sums& sums, int lane) {
  constexpr int kHigh = Shape::kRows / 16, kWide = Shape::kColumns / 8;
  const auto exponent = [&](const MmaOperand& x, int line, std::int64_t count) {
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
struct MmaEpilogue {
  const Problem& p;
  const bool fp32;
  const void *const c = p.c.data, *const bias = p.bias.data, *const residual = p.residual.data;
  const float beta = static_cast<float>(p.beta);
  std::int64_t c_batch = 0, bias_batch = 0, residual_batch = 0, factor_batch;  ///< where the batch begins, in elements
  __device__ __forceinline__ MmaEpilogue(const Problem& problem, bool of_fp32, unsigned batch)
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

/// Stores a warp's sums, 16 rows at a time through its shared memory `own`: to C, or those of a split as they are. A lane stores
/// two quads of 256 elements, or, where N is not a multiple of four, single elements, the lanes' neighbours.
template <class Shape>
__device__ __forceinline__ void store_tile(const MmaArguments& g, const TilePart& tile, typename Shape::Sums& sums,
                                           unsigned char* own) {
  using T = typename Shape::T;
  constexpr int kPitch = Shape::kPitch, kColumns = Shape::kColumns;
  const Problem& p = g.problem;
  const int lane = static_cast<int>(threadIdx.x % 32), m = static_cast<int>(p.m), n = static_cast<int>(p.n);
  const bool scaled_lines = Shape::kParts == 2 || (std::is_same_v<T, half> && g.a.lines != nullptr),
             fp32 = sizeof(T) == 4 || scaled_lines, split = gridDim.y > 1, wide = split || fp32 || p.wide_out, quads = n % 4 == 0;
  if (scaled_lines) unscale_sums<Shape>(g, tile, sums, lane);
  const MmaEpilogue<T> epilogue(p, fp32, tile.batch);
  const std::int64_t matrix = (split ? blockIdx.y * p.batches + tile.batch : tile.batch) * p.m * p.n;
  void* const out = split ? g.partials : p.out;
  float* const stage = reinterpret_cast<float*>(own);
  const int first_column = tile.column + tile.warp_column, apart = quads ? 1 : 32;
#pragma unroll 1
  for (int slab = 0; slab < Shape::kRows / 16; ++slab) {
    const int first_row = tile.row + tile.warp_row + 16 * slab;
    if (first_row >= m) return;
#pragma unroll
    for (int i = 0; i < Shape::kRows / 16; ++i) {  // registers have no index; one copy of what follows
      if (i != slab) continue;
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          store_vector(stage + (8 * h + lane / 4) * kPitch + 8 * j + lane % 4 * 2,
                       Vector<float, 2>{{sums[i][j][2 * h], sums[i][j][2 * h + 1]}});
    }
    __syncwarp();
#pragma unroll 1
    for (int first = quads ? 4 * lane : lane; first < 16 * kColumns; first += 256) {
      const auto row = [&](int v) { return (first + v / 4 * 128 + v % 4 * apart) / kColumns; };
      const auto column = [&](int v) { return (first + v / 4 * 128 + v % 4 * apart) % kColumns; };
      const auto exists = [&](int v) { return first_row + row(v) < m && first_column + column(v) < n; };
      float x[8];
      if (quads) {
#pragma unroll
        for (int v = 0; v < 8; v += 4) {
          const auto quad = load_quad(stage + row(v) * kPitch + column(v));
#pragma unroll
          for (int i = 0; i < 4; ++i) x[v + i] = quad.v[i];
        }
      } else {
#pragma unroll
        for (int v = 0; v < 8; ++v) x[v] = stage[row(v) * kPitch + column(v)];
      }
      if (!split)
        epilogue(
            x, [&](int v) { return std::int64_t{min(first_row + row(v), m - 1)}; },
            [&](int v) { return std::int64_t{min(first_column + column(v), n - 1)}; });
      const auto put = [&](auto* to) {
        using Out = std::remove_reference_t<decltype(*to)>;
        to += matrix;
#pragma unroll
        for (int v = 0; v < 8; v += 4) {
          if (quads) {
            const Quad<Out> results{{convert<Out>(x[v]), convert<Out>(x[v + 1]), convert<Out>(x[v + 2]), convert<Out>(x[v + 3])}};
            if (exists(v)) store_quad(to + (first_row + row(v)) * p.n + first_column + column(v), results);
          } else {
#pragma unroll
            for (int i = v; i < v + 4; ++i)
              if (exists(i)) to[(first_row + row(i)) * p.n + first_column + column(i)] = convert<Out>(x[i]);
          }
        }
      };
      wide ? put(static_cast<float*>(out)) : put(static_cast<T*>(out));
    }
    __syncwarp();
  }
}

}  // namespace xgemm::matmul::mma_detail
