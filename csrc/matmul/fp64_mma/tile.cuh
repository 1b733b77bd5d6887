// fp64: the kernel's arguments, the tiles of its CTAs and warps, and their order.
#pragma once
#include "device/index_map.h"
#include "device/pipeline.cuh"
#include "matmul/fp64_mma/panel.cuh"
#include "matmul/problem.h"

namespace xgemm::matmul {

inline constexpr int kFp64Group = 12;  ///< rows of tiles per group

struct Fp64Arguments {
  Problem problem;
  bool vectors_a, vectors_b;  ///< 16 bytes per copy, else 8
  bool totals;                ///< a CTA has several segments and writes C
  bool plain;                 ///< nothing but alpha and bias in the epilogue
  int rows;                   ///< of tiles
  /// All tiles, tiles of a batch, of a full group of rows; rows of the last group.
  ShortDivider per_split, per_batch, per_group, last_rows;
  int blocks, segment;  ///< k-blocks of K, of a segment
  int split_blocks;     ///< k-blocks of a CTA
  double* partial;      ///< [segment][batch][m][n] if CTAs share a tile's k
};

namespace fp64_detail {

inline constexpr int kMostSlots = 8, kPipelineBytes = 128;
static_assert(Pipeline<kMostSlots>::kBytes == kPipelineBytes);

template <Fp64Tile kTile, bool kAlongKA, bool kAlongKB>
struct Shape {
  static constexpr Fp64Geometry kInfo = geometry(kTile);
  static constexpr int kRows = kInfo.rows / kInfo.warps_rows, kColumns = kInfo.columns / kInfo.warps_columns;  // of a warp
  static constexpr int kHigh = kRows / 16, kWide = kColumns / 8;                                               // mmas of a warp
  static __device__ __forceinline__ int warp_row(int warp) { return warp / kInfo.warps_columns * kRows; }
  static __device__ __forceinline__ int warp_column(int warp) { return warp % kInfo.warps_columns * kColumns; }
  static_assert(kWide % 2 == 0);  // B's fragments alternate between two sets of registers
  using A = Panel<kInfo.rows, kAlongKA>;
  using B = Panel<kInfo.columns, kAlongKB>;
  static constexpr int kSlot = A::kDoubles + B::kDoubles;
  static constexpr int kTurn = kHigh % 2 ? 1 : 2;           // blocks of 16 rows that a warp stores at a time
  static constexpr int kStage = kTurn * 16 * kColumns;      // doubles
  static_assert(kHigh % kTurn == 0 && kColumns % 16 == 0);  // whole turns; the swizzle of a stage stays in its row
  static_assert(kInfo.shared_bytes(false) >= 8 * kStage * kInfo.consumers() / 32);
  static_assert(kInfo.slots <= kMostSlots && kInfo.slots_beside_totals <= kMostSlots);
  /// Element 2 h + c of [i][j] is row 16 i + lane / 4 + 8 h, column 8 j + 2 (lane % 4) + c.
  using Sums = double[kHigh][kWide][4];
};

/// Calls f(i, j, h): the pair of columns from 8 j + 2 (lane % 4) on of row 16 i + lane / 4 + 8 h.
template <class Shape, class F>
__device__ __forceinline__ void each_pair(const F& f) {
#pragma unroll
  for (int i = 0; i < Shape::kHigh; ++i)
#pragma unroll
    for (int j = 0; j < Shape::kWide; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) f(i, j, h);
}

/// The CTA's tile, and its index among the CTAs that share the tile's k. Groups of rows of tiles, column by column in each, so
/// that CTAs that run at a time share the operands that they read in L2.
template <class Shape>
struct Item {
  int split, batch, row, column;  ///< row, column: the tile's first
  __device__ __forceinline__ explicit Item(const Fp64Arguments& g) {
    unsigned block;  // read again, as thread_index() (device/warp.cuh)
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    split = g.per_split.divide(static_cast<int>(block));
    const int in_split = static_cast<int>(block) - split * static_cast<int>(g.per_split.divisor);
    batch = g.per_batch.divide(in_split);
    const int in_batch = in_split - batch * static_cast<int>(g.per_batch.divisor), group = g.per_group.divide(in_batch),
              in_group = in_batch - group * static_cast<int>(g.per_group.divisor);
    const bool whole = (group + 1) * kFp64Group <= g.rows;
    const int height = whole ? kFp64Group : static_cast<int>(g.last_rows.divisor),
              at = whole ? in_group / kFp64Group : g.last_rows.divide(in_group);
    row = (group * kFp64Group + in_group - at * height) * Shape::kInfo.rows, column = at * Shape::kInfo.columns;
  }
};

}  // namespace fp64_detail

}  // namespace xgemm::matmul
