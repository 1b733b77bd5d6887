// Half-precision products that are small, or tall and narrow, and fp32 products in tf32 of operands as TMA cannot load them or
// wgmma cannot read them (sm_90: on others mma.sync need not round as wgmma does): one launch, one CTA per tile of C (fp32: or
// per split of its K, split_k.cuh). out = epilogue(A B), A m x k, B k x n, each contiguous along one of its dims, at any address;
// any batch. Sizes and tiles under 2^30. Design: docs/matmul.md; operands: panels.cuh.
//
//   Load    cp.async of 16 bytes to swizzled shared memory, up to `stages` k-blocks of 128 bytes (64 or 32 k) in flight.
//   Unaligned
//           rows: 4 bytes (fp32: or 8), or through registers by element, where a block is in flight while the one before it is
//           stored.
//   Shared  [line][k] if the operand is contiguous along k, else [k][line]; ldmatrix (transposed) reads both without bank
//           conflicts. fp32 [k][line], which ldmatrix cannot transpose: a load for each register, without conflicts too.
//   Order   k (of a split) goes through mma.sync 16 (fp32: 8) at a time, in order, into one accumulator: the bits of half
//           precision are those of wgmma/kernel.cuh where it does not split K. fp32 is rounded to tf32 as TMA
//           does, to nearest even, on its way from shared memory to registers.
//   Store   through the warp's own shared memory, 16 bytes at a time (one element if N is not a multiple of them).
//
// Floor: its bytes; below 256 a side a launch and a round trip to memory, 1.5 us. A k-block costs at least the latency of four
// dependent mma, 130 cycles.
#pragma once
#include "device/bytes16.cuh"
#include "device/ptx/cp_async.cuh"
#include "device/ptx/grid.cuh"
#include "device/ptx/mma.cuh"
#include "matmul/epilogue/apply.cuh"
#include "matmul/epilogue/batch.cuh"
#include "matmul/mma/panels.cuh"
#include "matmul/mma/split_k.cuh"

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

/// How a CTA divides its tile.
struct Geometry {
  int rows, columns, beside;  ///< as TileInfo's m, n and per_sm
  int warps_rows, warps_columns;
  int stages;  ///< most k-blocks in flight
};
constexpr Geometry geometry(MmaTile tile) {
  const TileInfo& t = info(tile);
  switch (tile) {
    case MmaTile::t16x64: return {t.m, t.n, t.per_sm, 1, 4, 6};
    case MmaTile::tf32_128x64: return {t.m, t.n, t.per_sm, 4, 1, 4};
    case MmaTile::tf32_64x128: return {t.m, t.n, t.per_sm, 2, 4, 4};
    default: return {t.m, t.n, t.per_sm, 2, 2, is_tf32(tile) ? 4 : 6};
  }
}

template <class T, MmaTile kTile, bool kAlongKA, bool kAlongKB, bool kUnaligned>
struct Shape {
  static constexpr Geometry kInfo = geometry(kTile);
  static constexpr int kWarps = kInfo.warps_rows * kInfo.warps_columns, kThreads = 32 * kWarps;
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
  static constexpr int kStages = kPairs ? stages_of(kInfo.stages, kSlot, kBeside) : kInfo.stages;
  static constexpr int kPitch = kColumns + 4;  // floats of a row of a warp's sums
  static constexpr int kSums = 4 * kWarps * kRows * kPitch;
  static constexpr int shared_bytes(int slots) { return slots * kSlot > kSums ? slots * kSlot : kSums; }
};

}  // namespace mma_detail

/// kUnaligned: g.bytes_a or g.bytes_b is less than 16.
template <class T, MmaTile kTile, bool kAlongKA, bool kAlongKB, bool kUnaligned>
__global__ void __launch_bounds__(mma_detail::Shape<T, kTile, kAlongKA, kAlongKB, kUnaligned>::kThreads,
                                  mma_detail::Shape<T, kTile, kAlongKA, kAlongKB, kUnaligned>::kBeside)
    mma_gemm(const __grid_constant__ MmaArguments g) {
  using Shape = mma_detail::Shape<T, kTile, kAlongKA, kAlongKB, kUnaligned>;
  using A = typename Shape::A;
  using B = typename Shape::B;
  constexpr int kSlot = Shape::kSlot, kStages = Shape::kStages, kRows = Shape::kRows, kColumns = Shape::kColumns;
  extern __shared__ __align__(1024) unsigned char ring[];

  const Problem& p = g.problem;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const unsigned batch = g.tiles == gridDim.x ? 0 : blockIdx.x / g.tiles, tile = blockIdx.x - batch * g.tiles;
  const unsigned tile_row = tile / g.columns;
  const int row0 = static_cast<int>(tile_row) * Shape::kInfo.rows,
            column0 = static_cast<int>(tile - tile_row * g.columns) * Shape::kInfo.columns;
  const int rows = static_cast<int>(p.m) - row0, columns = static_cast<int>(p.n) - column0;
  const T* a = static_cast<const T*>(p.a.data) + row0 * p.a.row_stride;
  const T* b = static_cast<const T*>(p.b.data) + column0 * p.b.col_stride;
  each_batch_dim(p, batch, [&](int d, std::int64_t at) { a += at * p.a.batch_stride[d], b += at * p.b.batch_stride[d]; });
  constexpr bool kSplits = sizeof(T) == 4;
  std::int64_t depth = p.k;
  if constexpr (kSplits) {
    const int length = g.split_blocks * A::kDepth, first = static_cast<int>(blockIdx.y) * length;
    depth = min(static_cast<int>(p.k) - first, length);
    a += first * p.a.col_stride, b += first * p.b.row_stride;
  }
  A of_a(a, p.a.row_stride, p.a.col_stride, rows, static_cast<int>(depth));
  B of_b(b, p.b.col_stride, p.b.row_stride, columns, static_cast<int>(depth));
  const int blocks = static_cast<int>(static_cast<unsigned>(depth + A::kDepth - 1) / A::kDepth),
            whole = static_cast<int>(static_cast<unsigned>(depth) / A::kDepth);
  const int ring_bytes = g.slots * kSlot;
  int next = 0, slot = 0;  // offsets of the slot to fill, and of the slot to read

  const int warp_row = warp / Shape::kInfo.warps_columns * kRows, warp_column = warp % Shape::kInfo.warps_columns * kColumns;
  const typename Shape::ReaderA reader_a(warp_row, lane);
  const typename Shape::ReaderB reader_b(warp_column, lane);
  [[maybe_unused]] typename A::Pairs pairs_a;  // of the last block that was asked for, where elements are copied
  [[maybe_unused]] typename B::Pairs pairs_b;
  const auto start_copy = [&](int block) {
    unsigned char* const to = ring + next;
    if constexpr (kUnaligned) {
      unsigned char* const before = ring + (next == 0 ? ring_bytes : next) - kSlot;
      if (Shape::kPairs && block > 0 && block <= blocks) {
        if (g.bytes_a == 2) A::store(pairs_a, before);
        if (g.bytes_b == 2) B::store(pairs_b, before + A::kBytes);
      }
      if (block < blocks) {
        of_a.copy_unaligned(g.bytes_a, pairs_a, to), of_b.copy_unaligned(g.bytes_b, pairs_b, to + A::kBytes);
      }
    } else if (block < whole) {
      of_a.template copy<true>(to), of_b.template copy<true>(to + A::kBytes);
    } else if (block < blocks) {
      of_a.template copy<false>(to), of_b.template copy<false>(to + A::kBytes);
    }
    next = next + kSlot == ring_bytes ? 0 : next + kSlot;
    cp_async_commit();  // an empty group too: the wait counts groups
  };
  const unsigned char *panel_a, *panel_b;
  // Barrier: all threads' copies of the next block have arrived, and all threads have read the block before.
  const auto meet = [&] {
    __syncthreads();
    panel_a = ring + slot, panel_b = panel_a + A::kBytes;
    slot = slot + kSlot == ring_bytes ? 0 : slot + kSlot;
  };
  constexpr int kSteps = mma_detail::kSteps;
  // Blocks whose fragments are read ahead: the few products of a small tile would wait for each read.
  constexpr int kAhead = kRows * kColumns <= 512 ? 1 : 0;
  std::uint32_t fa[kSteps][kRows / 16][4], fb[kSteps][kColumns / 16][4];  // a block's fragments
  const auto read = [&](int step) {
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) reader_a.read(fa[step][i], panel_a, i, step);
#pragma unroll
    for (int j = 0; j < kColumns / 16; ++j) reader_b.read(fb[step][j], panel_b, j, step);
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (auto& fragment : fa[step])
#pragma unroll
        for (std::uint32_t& x : fragment) x = ptx::round_to_tf32(x);
#pragma unroll
      for (auto& fragment : fb[step])
#pragma unroll
        for (std::uint32_t& x : fragment) x = ptx::round_to_tf32(x);
    }
  };

  ptx::grid_wait();
  ptx::grid_release();
#pragma unroll 1
  for (int block = 0; block < kStages - 1 + kAhead; ++block) start_copy(block);
  // The bias of the lane's columns. Adding -0 changes nothing.
  float add[kColumns / 8][2];
  const T* const bias = g.plain ? static_cast<const T*>(p.bias.data) : nullptr;
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int column = min(column0 + warp_column + 8 * j + lane % 4 * 2 + c, static_cast<int>(p.n) - 1);
      add[j][c] = bias ? convert<float>(bias[column * p.bias.col_stride]) : -0.f;
    }
  if constexpr (kAhead > 0) {
    cp_async_wait<kStages - 1>();
    meet();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) read(step);
  }
  float sums[kRows / 16][kColumns / 8][4] = {};
#pragma unroll 1
  for (int block = 0; block < blocks; ++block) {
    const bool more = block + kAhead < blocks;
    if (more) {
      cp_async_wait<kStages - 2>();
      meet();
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (kAhead == 0) read(step);
#pragma unroll
      for (int i = 0; i < kRows / 16; ++i)
#pragma unroll
        for (int j = 0; j < kColumns / 8; ++j)
          ptx::mma<T>(sums[i][j], fa[step][i], fb[step][j / 2][j % 2 * 2], fb[step][j / 2][j % 2 * 2 + 1]);
      if (kAhead > 0 && more) read(step);
    }
    start_copy(block + kStages - 1 + kAhead);
  }

  if constexpr (kSplits) {
    if (gridDim.y > 1) {
      const mma_detail::TileSplit<Shape::kInfo.rows, Shape::kInfo.columns> part(g.partials, g.meetings[blockIdx.x], row0, column0,
                                                                                rows, columns);
#pragma unroll
      for (int i = 0; i < kRows / 16; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = warp_row + 16 * i + 8 * h + lane / 4;
          if (row >= rows) continue;
#pragma unroll
          for (int j = 0; j < kColumns / 8; ++j)
            store_vector(part.at(row, warp_column + 8 * j + lane % 4 * 2),
                         Vector<float, 2>{{sums[i][j][2 * h], sums[i][j][2 * h + 1]}});
        }
      part.template add_and_store<Shape::kThreads>(p, batch);
      return;
    }
  }

  __syncthreads();  // the sums overwrite the slots
  const int row1 = row0 + warp_row, column1 = column0 + warp_column, rows_left = rows - warp_row,
            columns_left = columns - warp_column;
  T* const out = static_cast<T*>(p.out) + (static_cast<std::int64_t>(batch) * p.m + row1) * p.n + column1;
  constexpr int kWidth = Pack<T>::kCount, kPieces = kColumns / kWidth,
                kTurn = 32 / kPieces;  // elements of a piece, pieces of a row; rows that a warp stores at a time
  const int at_row = lane / kPieces, piece = lane % kPieces;
  // Stores the warp's rounded results, which lie in rows of `pitch` bytes.
  const auto store = [&](const unsigned char* own, auto pitch) {
    __syncwarp();
    if (p.n % kWidth == 0) {
      if (kWidth * piece >= columns_left) return;
      T* const to = out + at_row * p.n + kWidth * piece;
#pragma unroll
      for (int r = 0; r < kRows; r += kTurn)
        if (at_row + r < rows_left)
          *reinterpret_cast<uint4*>(to + r * p.n) = load_aligned16(own + (at_row + r) * pitch + 16 * piece);
    } else {  // one element per lane: aligned pieces would need as many stores for their ends
      constexpr int kAcross = kColumns < 32 ? kColumns : 32;
#pragma unroll
      for (int first = 0; first < kColumns; first += kAcross) {
        const int column = first + lane % kAcross;
        if (column >= columns_left) return;
#pragma unroll 4
        for (int r = lane / kAcross; r < min(kRows, rows_left); r += 32 / kAcross)
          out[r * p.n + column] = *reinterpret_cast<const T*>(own + r * pitch + static_cast<int>(sizeof(T)) * column);
      }
    }
  };
  if (g.plain) {  // alpha and bias alone: rounded in the registers
    constexpr int kSize = sizeof(T), kPitch = kSize * kColumns + 16;
    unsigned char* const own = ring + warp * (kRows * kPitch);
    const auto alpha = static_cast<float>(p.alpha);
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i)
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          Vector<T, 2> results;
#pragma unroll
          for (int c = 0; c < 2; ++c) results[c] = convert<T>(plus(scaled(alpha, sums[i][j][2 * h + c]), add[j][c]));
          store_vector(reinterpret_cast<T*>(own + (16 * i + 8 * h + lane / 4) * kPitch + 8 * kSize * j + lane % 4 * (2 * kSize)),
                       results);
        }
    store(own, std::integral_constant<int, kPitch>{});
    return;
  }
  constexpr int kPitch = Shape::kPitch;
  float* const own = reinterpret_cast<float*>(ring) + warp * (kRows * kPitch);
#pragma unroll
  for (int i = 0; i < kRows / 16; ++i)
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        store_vector(own + (16 * i + 8 * h + lane / 4) * kPitch + 8 * j + lane % 4 * 2,
                     Vector<float, 2>{{sums[i][j][2 * h], sums[i][j][2 * h + 1]}});
  __syncwarp();
  auto e = make_epilogue_at<T, float>(p);
  each_batch_dim(p, batch, [&](int d, std::int64_t at) {
    if (e.c) e.c += at * p.c.batch_stride[d];
    if (e.bias) e.bias += at * p.bias.batch_stride[d];
    if (e.residual) e.residual += at * p.residual.batch_stride[d];
  });
  const int first = column1 + kWidth * piece, last = static_cast<int>(p.n) - 1;
#pragma unroll 1
  for (int row = at_row; row < kRows; row += kTurn) {
    float* const from = own + row * kPitch;
    const std::int64_t r = min(row1 + row, static_cast<int>(p.m) - 1);
    float x[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; i += 4) {
      const Vector<float, 4> quad = load_vector<4>(from + kWidth * piece + i);
#pragma unroll
      for (int j = 0; j < 4; ++j) x[i + j] = scaled(e.alpha, quad[j]);
    }
    const auto column = [&](int i) { return std::int64_t{min(first + i, last)}; };
    apply<T>(
        x, e, [&](int i) { return e.c[r * e.c_row + column(i) * e.c_col]; },
        [&](int i) { return e.bias[column(i) * e.bias_col]; },
        [&](int i) { return e.residual[r * e.residual_row + column(i) * e.residual_col]; });
    Pack<T> results;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) results.values[i] = convert<T>(x[i]);
    __syncwarp();  // the rows' sums have been read: the results overwrite them
    *reinterpret_cast<uint4*>(reinterpret_cast<unsigned char*>(from) + 16 * piece) = as_raw(results);
  }
  store(reinterpret_cast<const unsigned char*>(own), std::integral_constant<int, 4 * kPitch>{});
}

}  // namespace xgemm::matmul
