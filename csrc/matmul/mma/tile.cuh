// The arguments of mma/kernel.cuh, the shape of its tiles, and where a tile lies.
#pragma once
#include "matmul/epilogue/apply.cuh"
#include "matmul/mma/panels.cuh"
#include "matmul/mma/plan.h"
#include "matmul/problem.h"
#include "matmul/split_k/meeting.cuh"

namespace xgemm::matmul {

struct MmaArguments {
  Problem problem;
  int bytes_a, bytes_b;     ///< of the pieces that an operand's rows are copied in: 16, 8 (fp32), 4 or 2
  bool plain;               ///< nothing but alpha and bias in the epilogue, one bias for all batches
  int slots;                ///< in shared memory: stages, or K's blocks if fewer
  unsigned columns, tiles;  ///< of a batch: tiles per row of tiles, and all
  int split_blocks;         ///< fp32: k-blocks of a split, which are gridDim.y
  Meeting* meetings;        ///< one per tile whose K is split
  float* partials;          ///< [tile][split][row][column]
};

namespace mma_detail {

/// At most `stages` slots, of which `ctas` CTAs find room on an SM.
constexpr int stages_of(int stages, int slot_bytes, int ctas) {
  while (stages > 3 && ctas * (stages * slot_bytes + 1024) > 227 * 1024) --stages;
  return stages;
}

template <class Type, MmaTile kTile, bool kAlongKA, bool kAlongKB, bool kUnalignedRows>
struct Shape {
  using T = Type;
  static constexpr bool kUnaligned = kUnalignedRows, kSplits = sizeof(T) == 4;
  static constexpr MmaGeometry kInfo = geometry(kTile);
  static constexpr int kThreads = kInfo.threads(), kWarps = kThreads / 32;
  static constexpr int kRows = kInfo.rows / kInfo.warps_rows, kColumns = kInfo.columns / kInfo.warps_columns;  // of a warp
  static_assert(is_tf32(kTile) == (sizeof(T) == 4));
  using A = Panel<T, kInfo.rows, kAlongKA, kThreads, kUnaligned>;
  using B = Panel<T, kInfo.columns, kAlongKB, kThreads, kUnaligned>;
  template <class Panel, bool kAlongK, bool kLinesFirst, int kFragments>
  using ReaderOf = std::conditional_t<Panel::kSingles, SingleReader<Panel, kLinesFirst, kFragments>,
                                      Reader<Panel, kAlongK, kLinesFirst, kFragments>>;
  using ReaderA = ReaderOf<A, kAlongKA, true, kRows / 16>;
  using ReaderB = ReaderOf<B, kAlongKB, false, kColumns / 16>;
  static constexpr bool kPairs = kUnaligned && sizeof(T) == 2;  // elements that no asynchronous copy can copy
  static constexpr int kSlot = A::kBytes + B::kBytes;
  static constexpr int kBeside = kPairs && A::kWords + B::kWords > 24 ? 3 : kInfo.beside;  // room for a block's elements
  /// Unaligned rows: as many CTAs as registers allow, which hide each other's loads through registers.
  static constexpr int kStages = kPairs ? stages_of(kInfo.slots, kSlot, kBeside) : kInfo.slots;
  static constexpr int kAhead = kRows * kColumns <= 512 ? 1 : 0;  // blocks whose fragments are read ahead (Multiplier)
  using Sums = float[kRows / 16][kColumns / 8][4];
  static constexpr int kPitch = kColumns + 4;  // floats of a row of a warp's sums
  static constexpr int kSums = 4 * kWarps * kRows * kPitch;
  static constexpr int shared_bytes(int slots) { return slots * kSlot > kSums ? slots * kSlot : kSums; }
};

/// The CTA's tile, or a split of it.
struct TilePart {
  unsigned batch;
  int row, column, rows, columns;  ///< its first, and how many there are from it on
};
template <class Shape>
__device__ __forceinline__ TilePart locate(const MmaArguments& g) {
  const unsigned batch = g.tiles == gridDim.x ? 0 : blockIdx.x / g.tiles, tile = blockIdx.x - batch * g.tiles,
                 tile_row = tile / g.columns;
  const int row = static_cast<int>(tile_row) * Shape::kInfo.rows,
            column = static_cast<int>(tile - tile_row * g.columns) * Shape::kInfo.columns;
  return {batch, row, column, static_cast<int>(g.problem.m) - row, static_cast<int>(g.problem.n) - column};
}

/// Where a CTA's operands begin, and how much of k it multiplies.
template <class T>
struct Origin {
  const T *a, *b;
  int depth;
};
template <class Shape>
__device__ __forceinline__ Origin<typename Shape::T> origin_of(const MmaArguments& g, const TilePart& tile) {
  using T = typename Shape::T;
  const Problem& p = g.problem;
  const T* a = static_cast<const T*>(p.a.data) + tile.row * p.a.row_stride;
  const T* b = static_cast<const T*>(p.b.data) + tile.column * p.b.col_stride;
  each_batch_dim(p, tile.batch, [&](int d, std::int64_t at) { a += at * p.a.batch_stride[d], b += at * p.b.batch_stride[d]; });
  int depth = static_cast<int>(p.k);
  if constexpr (Shape::kSplits) {
    const int length = g.split_blocks * Shape::A::kDepth, first = static_cast<int>(blockIdx.y) * length;
    depth = min(depth - first, length);
    a += first * p.a.col_stride, b += first * p.b.row_stride;
  }
  return {a, b, depth};
}

}  // namespace mma_detail
}  // namespace xgemm::matmul
