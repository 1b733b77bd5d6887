// Half-precision products that are small, or tall and narrow, and fp32 products in tf32 of operands as TMA cannot load them or
// wgmma cannot read them (sm_90: on others mma.sync need not round as wgmma does): one launch, one CTA per tile of C. out =
// epilogue(A B), A m x k, B k x n, each contiguous along one of its dims, at any address; any batch. Sizes and tiles under
// 2^30. Design: docs/matmul.md.
//
//   Load    cp.async of 16 bytes to swizzled shared memory, up to `stages` k-blocks of 128 bytes (64 or 32 k) in flight.
//   Unaligned
//           rows: 4 bytes, or through registers by element, where a block is in flight while the one before it is stored.
//   Shared  [line][k] if the operand is contiguous along k, else [k][line]; ldmatrix (transposed) reads both without bank
//           conflicts. fp32 [k][line], which ldmatrix cannot transpose: a load for each register, without conflicts too.
//   Order   k goes through mma.sync 16 (fp32: 8) at a time, in order, into one accumulator: the bits of half precision are those
//           of wgmma/kernel.cuh where it does not split K (wgmma_splits). fp32 is rounded to tf32 as TMA does, to nearest even,
//           on its way from shared memory to registers.
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
#include "matmul/mma/plan.h"

namespace xgemm::matmul {

struct MmaArguments {
  Problem problem;
  int bytes_a, bytes_b;     ///< of the pieces that an operand's rows are copied in: 16, 4 or 2
  bool plain;               ///< nothing but alpha and bias in the epilogue, one bias for all batches
  int slots;                ///< in shared memory: stages, or K's blocks if fewer
  unsigned columns, tiles;  ///< of a batch: tiles per row of tiles, and all
};

namespace mma_detail {

/// One operand: its k-blocks in shared memory, and what this thread copies of them. kUnaligned: rows may be unaligned.
template <class T, int kLines, bool kAlongK, int kThreads, bool kUnaligned>
struct Panel {
  static constexpr int kSize = sizeof(T), kDepth = kMmaRowBytes / kSize;                                   // k of a block
  static constexpr int kRow = kAlongK ? kMmaRowBytes : kSize * kLines, kRows = kAlongK ? kLines : kDepth;  // row bytes; rows
  static constexpr int kBytes = kRow * kRows, kPieces = kRow / 16;
  static constexpr int kStep = kThreads / kPieces, kCount = kRows / kStep;  // a thread's rows: how far apart, and how many
  static constexpr int kWords = kBytes / 4 / kThreads;                      // a thread's words of a block
  static constexpr bool kSingles = kSize == 4 && !kAlongK;                  // read one register at a time
  static_assert(kStep % (kSingles ? 4 : 8) == 0 && kCount * kStep == kRows, "a thread's rows are swizzled alike");

  const unsigned char* piece[kUnaligned ? 1 : kCount];  // the thread's pieces, one per row, at the next block's k; else the block
  std::int64_t advance, across;                         // bytes to the next block, and to the next row
  int to, rows, bytes;                                  // offset of its first piece; rows left, and bytes left in a row

  __device__ __forceinline__ Panel(const T* from, std::int64_t line_stride, std::int64_t k_stride, int lines, int depth) {
    across = kSize * (kAlongK ? line_stride : k_stride);
    advance = kAlongK ? kMmaRowBytes : kDepth * across;
    to = place(first(), at());
    rows = kAlongK ? lines : depth, bytes = kSize * (kAlongK ? depth : lines);
    if constexpr (kUnaligned) {
      piece[0] = reinterpret_cast<const unsigned char*>(from);
      asm volatile("" : "+l"(piece[0]));  // computed before grid_wait()
    } else {
      rows -= first(), bytes -= 16 * at();
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        piece[i] = reinterpret_cast<const unsigned char*>(from) + (first() + i * kStep) * across + 16 * at();
        asm volatile("" : "+l"(piece[i]));
      }
    }
    asm volatile("" : "+l"(advance), "+r"(to), "+r"(rows), "+r"(bytes));
  }
  static __device__ __forceinline__ int first() { return static_cast<int>(threadIdx.x / kPieces); }
  static __device__ __forceinline__ int at() { return static_cast<int>(threadIdx.x % kPieces); }

  /// Offset of piece `at` of a row. Pieces `at` of eight rows lie in different banks; of fp32 [k][line], whose registers are read
  /// one by one, pairs of pieces of four rows.
  static __device__ __forceinline__ int place(int row, int at) {
    constexpr int kTurn = kPieces < 8 ? kPieces : 8;
    static_assert(kSize == 2 || kTurn == 8);
    if constexpr (kSingles) return row * kRow + (at ^ row % 4 * 2) * 16;
    return row * kRow + (at ^ (row / (8 / kTurn) % kTurn)) * 16;
  }

  __device__ __forceinline__ void step() {
#pragma unroll
    for (auto& p : piece) p += advance;
    (kAlongK ? bytes : rows) -= kAlongK ? kMmaRowBytes : kDepth;
  }

  /// Copies the next block of aligned rows. kWhole: all its k are in bounds. (Lines out of bounds become zeros. Reading the last
  /// line instead would overload its slice of L2.)
  template <bool kWhole>
  __device__ __forceinline__ void copy(unsigned char* slot) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const bool row = (kWhole && !kAlongK) || i * kStep < rows, column = (kWhole && kAlongK) || bytes > 0;
      cp_async_or_zeros(slot + to + i * (kStep * kRow), piece[i], row && column);
    }
    step();
  }

  /// f(i, row, byte in the row) of each piece of kPiece bytes that this thread copies; neighbouring threads copy neighbours.
  template <int kPiece, class F>
  static __device__ __forceinline__ void each(const F& f) {
    constexpr int kPer = kRow / kPiece, kTurn = kThreads / kPer;
    static_assert(kTurn * kPer == kThreads && kRows % kTurn == 0);
    const int row = static_cast<int>(threadIdx.x / kPer), byte = static_cast<int>(threadIdx.x % kPer) * kPiece;
#pragma unroll
    for (int i = 0; i < kRows / kTurn; ++i) f(i, row + i * kTurn, byte);
  }
  /// Copies the next block kPiece bytes at a time: rows and their ends are aligned to them.
  template <int kPiece>
  __device__ __forceinline__ void copy_pieces(unsigned char* slot) {
    each<kPiece>([&](int, int row, int byte) {
      cp_async<kPiece>(slot + place(row, byte / 16) + byte % 16, piece[0] + row * across + byte,
                       row < rows && byte < bytes ? kPiece : 0);
    });
    step();
  }

  /// A thread's elements of a block, in pairs: asynchronous copies of two bytes do not exist.
  struct Pairs {
    std::uint16_t low[kWords], high[kWords];
  };
  __device__ __forceinline__ void load(Pairs& x) {
    each<4>([&](int i, int row, int byte) {
      const auto* const from = reinterpret_cast<const std::uint16_t*>(piece[0] + row * across + byte);
      x.low[i] = row < rows && byte < bytes ? from[0] : std::uint16_t{0};
      x.high[i] = row < rows && byte + 2 < bytes ? from[1] : std::uint16_t{0};
    });
    step();
  }
  static __device__ __forceinline__ void store(const Pairs& x, unsigned char* slot) {
    each<4>([&](int i, int row, int byte) {
      *reinterpret_cast<std::uint32_t*>(slot + place(row, byte / 16) + byte % 16) =
          x.low[i] | static_cast<std::uint32_t>(x.high[i]) << 16;
    });
  }
};

constexpr int kSteps = kMmaRowBytes / 32;  ///< of an mma each, in a k-block

/// A lane's ldmatrix offsets for kFragments fragments of 16 lines from `line` on, of four matrices of 8 lines by 16 bytes of k
/// each. kLinesFirst: (lines 0-7, first half of k), (8-15, first), (0-7, second), (8-15, second); else the middle two exchanged.
template <class Panel, bool kAlongK, bool kLinesFirst, int kFragments>
struct Reader {
  int offset[kAlongK ? kSteps : kFragments];  // the swizzle depends on the step, or on the fragment
  __device__ __forceinline__ Reader(int line, int lane) {
    const int matrix = lane / 8, upper_line = kLinesFirst ? matrix % 2 : matrix / 2,
              upper_k = kLinesFirst ? matrix / 2 : matrix % 2;
#pragma unroll
    for (int i = 0; i < (kAlongK ? kSteps : kFragments); ++i)
      offset[i] = kAlongK ? Panel::place(line + 8 * upper_line + lane % 8, 2 * i + upper_k)
                          : Panel::place(8 * upper_k + lane % 8, line / 8 + 2 * i + upper_line);
#pragma unroll
    for (int& x : offset) asm volatile("" : "+r"(x));  // computed before grid_wait()
  }
  __device__ __forceinline__ void read(std::uint32_t (&r)[4], const unsigned char* panel, int fragment, int step) const {
    if constexpr (kAlongK)
      ptx::ldmatrix(r, panel + offset[step] + fragment * 16 * Panel::kRow);
    else
      ptx::ldmatrix_transposed(r, panel + offset[fragment] + step * 16 * Panel::kRow);
  }
};

/// The same of fp32 [k][line]: a register's line is lane / 4 of its matrix, its k lane % 4.
template <class Panel, bool kLinesFirst, int kFragments>
struct SingleReader {
  static constexpr int kTurn = 32;  // lines after which the swizzle repeats
  int offset[2][2];                 // of a fragment's upper half of `kTurn` lines, of a matrix's upper eight lines
  __device__ __forceinline__ SingleReader(int line, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = line + 16 * (i / 2) + 8 * (i % 2) + lane / 4;
      offset[i / 2][i % 2] = Panel::place(lane % 4, at / 4) + at % 4 * 4;
      asm volatile("" : "+r"(offset[i / 2][i % 2]));  // computed before grid_wait()
    }
  }
  __device__ __forceinline__ void read(std::uint32_t (&r)[4], const unsigned char* panel, int fragment, int step) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int upper_line = kLinesFirst ? i % 2 : i / 2, upper_k = kLinesFirst ? i / 2 : i % 2;
      r[i] = *reinterpret_cast<const std::uint32_t*>(panel + offset[fragment % 2][upper_line] + fragment / 2 * (4 * kTurn) +
                                                     (8 * step + 4 * upper_k) * Panel::kRow);
    }
  }
};

/// At most `stages` slots, of which `ctas` CTAs find room on an SM.
constexpr int stages_of(int stages, int slot_bytes, int ctas) {
  while (stages > 3 && ctas * (stages * slot_bytes + 1024) > 227 * 1024) --stages;
  return stages;
}

template <class T, MmaTile kTile, bool kAlongKA, bool kAlongKB, bool kUnaligned>
struct Shape {
  static constexpr MmaTileInfo kInfo = info(kTile);
  static constexpr int kWarps = kInfo.warps_rows * kInfo.warps_columns, kThreads = 32 * kWarps;
  static constexpr int kRows = kInfo.rows / kInfo.warps_rows, kColumns = kInfo.columns / kInfo.warps_columns;  // of a warp
  static_assert(kInfo.tf32 == (sizeof(T) == 4));
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
  A of_a(a, p.a.row_stride, p.a.col_stride, rows, static_cast<int>(p.k));
  B of_b(b, p.b.col_stride, p.b.row_stride, columns, static_cast<int>(p.k));
  const int blocks = static_cast<int>(static_cast<unsigned>(p.k + A::kDepth - 1) / A::kDepth),
            whole = static_cast<int>(static_cast<unsigned>(p.k) / A::kDepth);
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
        g.bytes_a == 16                    ? of_a.template copy_pieces<16>(to)
        : g.bytes_a == 4 || !Shape::kPairs ? of_a.template copy_pieces<4>(to)
                                           : of_a.load(pairs_a);
        unsigned char* const to_b = to + A::kBytes;
        g.bytes_b == 16                    ? of_b.template copy_pieces<16>(to_b)
        : g.bytes_b == 4 || !Shape::kPairs ? of_b.template copy_pieces<4>(to_b)
                                           : of_b.load(pairs_b);
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
