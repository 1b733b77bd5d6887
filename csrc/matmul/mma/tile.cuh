// How a CTA of mma/kernel.cuh divides its tile, and where the tile lies.
#pragma once
#include "device/tile_order.cuh"
#include "matmul/epilogue/batch.cuh"
#include "matmul/mma/geometry.h"
#include "matmul/mma/operands.cuh"

namespace xgemm::matmul::mma_detail {

template <class Type, MmaTile kTile, bool kAlongKA, bool kAlongKB>
struct Shape {
  using T = Type;
  static_assert(sizeof(T) == element_bytes(kTile));
  static constexpr TileInfo kInfo = info(kTile);
  static constexpr MmaGeometry kWarpGrid = geometry(kTile);
  static constexpr int kStages = kWarpGrid.stages, kThreads = kWarpGrid.threads(), kWarps = kThreads / 32;
  static constexpr int kBlockK = kInfo.k, kStepK = 32 / sizeof(T), kSteps = kBlockK / kStepK;  ///< k: of a k-block, of an mma
  static constexpr int kParts = parts_of(kTile);
  static constexpr int kRows = kInfo.m / kWarpGrid.warps_rows, kColumns = kInfo.n / kWarpGrid.warps_columns;  ///< of a warp
  template <bool kAlongK, int kLines>
  using PanelOf = Panel<T, kLines, kAlongK, kBlockK>;
  template <bool kAlongK, int kLines>
  using Copies =
      std::conditional_t<takes_any_rows(kTile), AnyCopies<Shape, kAlongK, kLines>, WholeCopies<Shape, kAlongK, kLines>>;
  template <class Panel, bool kAlongK, bool kLinesFirst>
  using ReaderOf = std::conditional_t<Panel::kSingles, SingleReader<Panel, kLinesFirst>, Reader<Panel, kAlongK, kLinesFirst>>;
  using A = PanelOf<kAlongKA, kInfo.m>;
  using B = PanelOf<kAlongKB, kInfo.n>;
  using CopiesA = Copies<kAlongKA, kInfo.m>;
  using CopiesB = Copies<kAlongKB, kInfo.n>;
  using ReaderA = ReaderOf<A, kAlongKA, true>;
  using ReaderB = ReaderOf<B, kAlongKB, false>;
  static constexpr int kSlot = kParts * (A::kBytes + B::kBytes);
  using Sums = float[kRows / 16][kColumns / 8][4];
  static constexpr int kPitch = kColumns + 4, kStaging = 4 * 16 * kPitch;  ///< of a warp: floats of a row, bytes of 16 rows
  static_assert(kStages * kSlot == shared_bytes(kTile) && kWarps * kStaging <= kStages * kSlot);
};

/// A CTA's tile, or a split of it, and its warp's part.
struct TilePart {
  unsigned batch;
  int row, column, rows, columns;  ///< its first, and how many there are from it on
  int first_k, depth;
  int warp_row, warp_column;
};
template <class Shape>
__device__ __forceinline__ TilePart locate(const MmaArguments& g, int warp) {
  constexpr unsigned kGroup = 8;
  const TilePlace place = tile_at<kGroup>(blockIdx.x, g.rows, g.columns);
  TilePart t;
  t.batch = place.batch;
  t.row = static_cast<int>(place.row) * Shape::kInfo.m, t.column = static_cast<int>(place.column) * Shape::kInfo.n;
  t.rows = static_cast<int>(g.problem.m) - t.row, t.columns = static_cast<int>(g.problem.n) - t.column;
  t.first_k = static_cast<int>(blockIdx.y) * g.split_blocks * Shape::kBlockK;
  t.depth = min(static_cast<int>(g.problem.k) - t.first_k, g.split_blocks * Shape::kBlockK);
  t.warp_row = warp / Shape::kWarpGrid.warps_columns * Shape::kRows;
  t.warp_column = warp % Shape::kWarpGrid.warps_columns * Shape::kColumns;
  return t;
}

/// Where A and B of a tile begin.
struct Origins {
  const char *a, *b;
};
template <class Shape>
__device__ __forceinline__ Origins origins(const Problem& p, const TilePart& t) {
  std::int64_t a = t.row * p.a.row_stride + t.first_k * p.a.col_stride,
               b = t.column * p.b.col_stride + t.first_k * p.b.row_stride;
  each_batch_dim(p, t.batch, [&](int d, std::int64_t at) { a += at * p.a.batch_stride[d], b += at * p.b.batch_stride[d]; });
  constexpr int kSize = sizeof(typename Shape::T);
  return {static_cast<const char*>(p.a.data) + kSize * a, static_cast<const char*>(p.b.data) + kSize * b};
}

}  // namespace xgemm::matmul::mma_detail
