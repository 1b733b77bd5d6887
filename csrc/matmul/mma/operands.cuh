// The operands of mma/kernel.cuh: k-blocks copied to swizzled shared memory, and the fragments of mma.sync that are read there.
#pragma once
#include "device/ptx/cp_async.cuh"
#include "device/ptx/mma.cuh"
#include "matmul/mma/arguments.cuh"

namespace xgemm::matmul::mma_detail {

/// An operand's k-block in shared memory: [line][k] if it is contiguous along k, else [k][line].
template <class T, int kLines, bool kAlongK, int kDepth>
struct Panel {
  static constexpr int kSize = sizeof(T);
  static constexpr int kRow = kSize * (kAlongK ? kDepth : kLines), kRows = kAlongK ? kLines : kDepth;  // row bytes; rows
  static constexpr int kBytes = kRow * kRows;
  static constexpr bool kSingles = kSize == 4 && !kAlongK;  // read one register at a time

  /// Offset of 16 bytes, the `at`-th of a row. Those of eight rows lie in different banks; of fp32 [k][line], whose registers are
  /// read one by one, two neighbours of four rows.
  static __device__ __forceinline__ int place(int row, int at) {
    constexpr int kPieces = kRow / 16, kTurn = kPieces < 8 ? kPieces : 8;
    static_assert(!kSingles || kTurn == 8);
    if constexpr (kSingles) return row * kRow + (at ^ row % 4 * 2) * 16;
    return row * kRow + (at ^ (row / (8 / kTurn) % kTurn)) * 16;
  }
};

/// A thread's copies of an operand's k-blocks in pieces of 16 bytes, to which its rows are aligned: kCopies a block. Lines out of
/// bounds are left as they are: their products are not stored.
template <class Shape, bool kAlongK, int kLines>
class WholeCopies {
  using Panel = typename Shape::template PanelOf<kAlongK, kLines>;
  static constexpr int kParts = Shape::kParts, kPieces = Panel::kRow / 16;
  static constexpr int kStep = Shape::kThreads / kPieces, kCount = Panel::kRows / kStep;  // a thread's rows: distance, number
  static_assert(sizeof(typename Shape::T) == 2 && kStep % 8 == 0 && kCount * kStep == Panel::kRows, "rows are swizzled alike");
  const char* from;       // the thread's next piece
  std::int64_t row_step;  // bytes from one of its rows to the next
  std::int64_t to_next;   // from a block's last row to the next block's first
  std::int64_t part;
  int to, left;    // offset of its first piece in a panel; elements (along k) or rows in bounds from that piece on
  unsigned there;  // its rows in bounds, one bit each

 public:
  static constexpr int kCopies = kCount * kParts;
  __device__ __forceinline__ WholeCopies(const MmaOperand& x, const char* begin, std::int64_t ld, int lines, int depth) {
    const int row = static_cast<int>(threadIdx.x / kPieces), at = static_cast<int>(threadIdx.x % kPieces);
    from = begin + row * ld + 16 * at;
    row_step = kStep * ld, to_next = (kAlongK ? 2 * Shape::kBlockK : Shape::kBlockK * ld) - (kCount - 1) * row_step;
    part = 2 * x.part_stride;
    to = Panel::place(row, at), left = kAlongK ? depth - 8 * at : depth - row;
    there = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (kAlongK ? row + i * kStep < lines : 8 * at < lines) there |= 1u << i;
  }
  /// Copies `kFirst` to `kLast` - 1 of the next block, all of whose k are in bounds, if `on`.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void issue(unsigned char* panel, bool on) {
    const unsigned rows = on ? there : 0;
#pragma unroll
    for (int i = kFirst; i < kLast; ++i) {
      const int row = i / kParts, p = i % kParts;
      if (i > 0 && p == 0) from += row_step;
      cp_async_if(panel + p * Panel::kBytes + to + row * (kStep * Panel::kRow), from + p * part, rows >> row & 1);
    }
  }
  /// The block, if it exists and issue() did not copy it; then the next block. `before`: the panel of the block before it.
  __device__ __forceinline__ void finish(unsigned char* panel, unsigned char*, bool on, bool exists) {
    if (exists && !on) {
      const char* x = from - (kCount - 1) * row_step;
#pragma unroll 1
      for (int i = 0; i < kCount; ++i, x += row_step) {
        const bool row = (there >> i & 1) != 0 && (kAlongK || i * kStep < left);
        const int bytes = !row ? 0 : kAlongK ? 2 * min(max(left, 0), 8) : 16;
#pragma unroll
        for (int p = 0; p < kParts; ++p)
          cp_async<16>(panel + p * Panel::kBytes + to + i * (kStep * Panel::kRow), x + p * part, bytes);
      }
    }
    from += to_next;
    left -= Shape::kBlockK;
  }
};

/// The same of rows at any address, in pieces as wide as they allow. Asynchronous copies of two bytes do not exist: such elements
/// go through registers, where a block is in flight while the one before it is stored.
template <class Shape, bool kAlongK, int kLines>
class AnyCopies {
  using T = typename Shape::T;
  using Panel = typename Shape::template PanelOf<kAlongK, kLines>;
  static constexpr int kSize = sizeof(T), kWords = Panel::kBytes / 4 / Shape::kThreads;
  static constexpr bool kElements = kSize == 2;
  static_assert(Shape::kParts == 1 && (!kElements || Shape::kStages >= 4), "elements are stored two blocks ahead");
  const char* block;      // the next one
  const std::int64_t ld;  // bytes to the next row
  const int piece;
  int rows, along;       // in bounds from the next block on: rows, and elements of a row
  bool waiting = false;  // are elements in flight?
  std::uint16_t low[kElements ? kWords : 1], high[kElements ? kWords : 1];

  /// f(i, row, byte in the row) of each piece of kPiece bytes that this thread copies; neighbouring threads copy neighbours.
  template <int kPiece, class F>
  static __device__ __forceinline__ void each(const F& f) {
    constexpr int kPer = Panel::kRow / kPiece, kTurn = Shape::kThreads / kPer;
    static_assert(kTurn * kPer == Shape::kThreads && Panel::kRows % kTurn == 0);
    const int row = static_cast<int>(threadIdx.x / kPer), byte = static_cast<int>(threadIdx.x % kPer) * kPiece;
#pragma unroll
    for (int i = 0; i < Panel::kRows / kTurn; ++i) f(i, row + i * kTurn, byte);
  }
  /// The same with the piece's address. One after another: addresses that were computed before take registers.
  template <int kPiece, class F>
  __device__ __forceinline__ void each_address(const F& f) const {
    constexpr int kPer = Panel::kRow / kPiece, kTurn = Shape::kThreads / kPer;
    const char* from = block + static_cast<int>(threadIdx.x / kPer) * ld + static_cast<int>(threadIdx.x % kPer) * kPiece;
    each<kPiece>([&](int i, int row, int byte) {
      f(i, row, byte, from);
      from += kTurn * ld;
      asm volatile("" : "+l"(from));
    });
  }
  template <int kPiece>
  __device__ __forceinline__ void copy(unsigned char* panel) const {
    each_address<kPiece>([&](int, int row, int byte, const char* from) {
      const int bytes = row < rows ? min(max(kSize * (along - byte / kSize), 0), kPiece) : 0;
      cp_async<kPiece>(panel + Panel::place(row, byte / 16) + byte % 16, from, bytes);
    });
  }
  __device__ __forceinline__ void load() {
    each_address<4>([&](int i, int row, int byte, const char* from) {
      const auto* const pair = reinterpret_cast<const std::uint16_t*>(from);
      low[i] = row < rows && byte / 2 < along ? pair[0] : std::uint16_t{0};
      high[i] = row < rows && byte / 2 + 1 < along ? pair[1] : std::uint16_t{0};
    });
  }
  __device__ __forceinline__ void store(unsigned char* panel) const {
    each<4>([&](int i, int row, int byte) {
      *reinterpret_cast<std::uint32_t*>(panel + Panel::place(row, byte / 16) + byte % 16) =
          low[i] | static_cast<std::uint32_t>(high[i]) << 16;
    });
  }

 public:
  static constexpr int kCopies = 0;  // that issue() is asked for
  __device__ __forceinline__ AnyCopies(const MmaOperand& x, const char* begin, std::int64_t ld, int lines, int depth)
      : block(begin), ld(ld), piece(x.bytes), rows(kAlongK ? lines : depth), along(kAlongK ? depth : min(lines, kLines)) {}
  template <int kFirst, int kLast>
  __device__ __forceinline__ void issue(unsigned char*, bool) {}
  __device__ __forceinline__ void finish(unsigned char* panel, unsigned char* before, bool, bool exists) {
    if (kElements && piece == 2) {
      if (waiting) store(before);
      waiting = exists;
    }
    if (exists) {
      if (piece == 16)
        copy<16>(panel);
      else if (kSize == 4 && piece == 8)
        copy<8>(panel);
      else if (piece == 4)
        copy<4>(panel);
      else if constexpr (kElements)
        load();
    }
    block += kAlongK ? kSize * Shape::kBlockK : Shape::kBlockK * ld;
    (kAlongK ? along : rows) -= Shape::kBlockK;
  }
};

/// A lane's ldmatrix offset of fragments of 16 lines by 32 bytes of k, in four matrices of 8 lines by 16 bytes. kLinesFirst:
/// (lines 0-7, first half of k), (8-15, first), (0-7, second), (8-15, second); else the middle two exchanged. One offset: the
/// swizzle of a step, or of 16 lines, flips bits of another's, as a warp's lines begin at multiples of their number.
template <class Panel, bool kAlongK, bool kLinesFirst>
struct Reader {
  int offset;
  __device__ __forceinline__ Reader(int line, int lane) {
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

/// The same of fp32 [k][line], which ldmatrix cannot transpose: a register's line is lane / 4 of its matrix, its k lane % 4.
template <class Panel, bool kLinesFirst>
struct SingleReader {
  static constexpr int kTurn = 32;  // lines after which the swizzle repeats
  int offset[2][2];                 // of a fragment's upper half of `kTurn` lines, of a matrix's upper eight lines
  __device__ __forceinline__ SingleReader(int line, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = line + 16 * (i / 2) + 8 * (i % 2) + lane / 4;
      offset[i / 2][i % 2] = Panel::place(lane % 4, at / 4) + at % 4 * 4;
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
