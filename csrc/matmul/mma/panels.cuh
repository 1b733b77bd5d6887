// The operands of mma/kernel.cuh: k-blocks copied to swizzled shared memory, and the fragments of mma.sync that are read there.
// [line][k] if the operand is contiguous along k, else [k][line]; ldmatrix (transposed) reads both without bank conflicts. fp32
// [k][line], which ldmatrix cannot transpose: a load for each register, without conflicts too.
#pragma once
#include "device/ptx/cp_async.cuh"
#include "device/ptx/mma.cuh"
#include "matmul/mma/plan.h"

namespace xgemm::matmul::mma_detail {

/// One operand: its k-blocks in shared memory, and what this thread copies of them. kUnaligned: rows may be unaligned.
template <class T, int kLines, bool kAlongK, int kThreads, bool kUnaligned, int kRowBytes = kMmaRowBytes>
struct Panel {
  static constexpr int kSize = sizeof(T), kDepth = kRowBytes / kSize;                                   // k of a block
  static constexpr int kRow = kAlongK ? kRowBytes : kSize * kLines, kRows = kAlongK ? kLines : kDepth;  // row bytes; rows
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
    advance = kAlongK ? kRowBytes : kDepth * across;
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
    (kAlongK ? bytes : rows) -= kAlongK ? kRowBytes : kDepth;
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
  /// Copies the next block in pieces of `piece_bytes`; of 2: loads it to `x`, which `store` writes.
  __device__ __forceinline__ void copy_unaligned(int piece_bytes, [[maybe_unused]] Pairs& x, unsigned char* slot) {
    if (piece_bytes == 16) {
      copy_pieces<16>(slot);
    } else if constexpr (kSize == 2) {
      piece_bytes == 4 ? copy_pieces<4>(slot) : load(x);
    } else {
      piece_bytes == 8 ? copy_pieces<8>(slot) : copy_pieces<4>(slot);
    }
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

}  // namespace xgemm::matmul::mma_detail
