// Stores unaligned rows of C in aligned pieces of 16 bytes: TMA stores only to multiples of 16 bytes.
#pragma once
#include "device/bytes16.cuh"
#include "device/ptx/stmatrix.cuh"
#include "device/ptx/tma.cuh"
#include "device/ptx/warpgroup.cuh"
#include "device/vector.cuh"
#include "matmul/epilogue/apply.cuh"
#include "matmul/wgmma/arguments.cuh"

namespace xgemm::matmul::wgmma_detail {

/// Two neighbouring results, rounded: a register of stmatrix.
template <class Out>
__device__ __forceinline__ std::uint32_t rounded_pair(float first, float second) {
  return __builtin_bit_cast(std::uint32_t, Vector<Out, 2>{{convert<Out>(first), convert<Out>(second)}});
}

/// Called by a warp before it writes one of two buffers in turns; `first`: the tile's first. The store before the previous one
/// read this buffer; a previous tile may have ended with either buffer, a main loop ago.
__device__ __forceinline__ void wait_for_buffer(bool first) {
  if (ptx::elect_one()) first ? ptx::tma_store_wait_read<0>() : ptx::tma_store_wait_read<1>();
  __syncwarp();
}

/// Stores boxes of 16 rows by 128 bytes, which alternate between two buffers of 2 KiB in TMA's 128-byte swizzle. A piece is 16
/// bytes of C at a multiple of 16. A row's first piece of a box begins with the end of the previous box, in the other buffer;
/// elements at the tile's two sides are stored one at a time. A lane stores a piece of row lane / 8, or 4 rows further, and of
/// the row eight further, which has the same skew.
template <class Out>
class RaggedRows {
  static constexpr int kPiece = 16 / static_cast<int>(sizeof(Out)), kBox = 8 * kPiece;  // elements
  uint4 low[2], high[2];
  Out* line;
  std::int64_t pitch;
  std::uint32_t from_high, from_low;
  int lane, r, skew, rows;
  bool low_before;  // the piece's low half is in the other buffer

  __device__ __forceinline__ std::uint32_t at(int p) const {  // offset of piece p of the row
    return static_cast<unsigned>(r * 128 + ((p ^ r) & 7) * 16);
  }

 public:
  /// `first_line`: the tile's first element in row lane / 8; `rows` are in bounds; `s`: 0 or 1, rows 4 s further.
  __device__ __forceinline__ RaggedRows(std::uint32_t buffers, Out* first_line, std::int64_t pitch, int rows, int lane, int s)
      : line(first_line + 4 * s * pitch), pitch(pitch), lane(lane), r(lane / 8 + 4 * s), rows(rows) {
    skew = static_cast<int>(misalignment(line) / sizeof(Out));
    const int piece = lane % 8;
    low_before = piece == 0 && skew != 0;
    from_high = buffers + at(piece), from_low = buffers + at(piece - (skew ? 1 : 0)) + (low_before ? 2048 : 0);
  }

  /// Loads the pieces of the box in the buffer at `offset`. The other buffer may be written after a __syncwarp.
  __device__ __forceinline__ void load(int offset) {
    const std::uint32_t here = from_high + static_cast<unsigned>(offset),
                        there = from_low + static_cast<unsigned>(low_before ? -offset : offset);
#pragma unroll
    for (int i = 0; i < 2; ++i) low[i] = ptx::load_shared16(there + 1024 * i), high[i] = ptx::load_shared16(here + 1024 * i);
  }

  /// Stores the loaded pieces from the tile's `column` on; `columns` are in bounds from there on, up to the tile's end.
  __device__ __forceinline__ void store(int column, int columns) const {
    const int c = kPiece * (lane % 8) - skew;
    const bool whole = c + kPiece <= columns && column + c >= 0;
    const unsigned shift = static_cast<unsigned>(-static_cast<int>(sizeof(Out)) * skew) & 15;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      ptx::store_global16_if(line + 8 * i * pitch + (column + c), shift_bytes(low[i], high[i], shift), whole && r + 8 * i < rows);
  }

  /// Stores elements of the box at `offset` that are in no whole piece. Call it before the other buffer is written.
  __device__ __forceinline__ void store_ends(std::uint32_t buffers, int offset, int column, int columns) const {
    if (column > 0 && columns > kBox) return;
    const int piece = lane % 8;
    const auto element = [&](int e, bool exists) {
      const int p = (e + kPiece) / kPiece - 1;
      const std::uint32_t from =
          buffers + at(p) +
          static_cast<unsigned>((p < 0 ? offset ^ 2048 : offset) + (e & (kPiece - 1)) * static_cast<int>(sizeof(Out)));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (!exists || r + 8 * i >= rows) continue;
        Out* const to = line + 8 * i * pitch + column + e;
        if constexpr (sizeof(Out) == 2)
          *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(ptx::load_shared2(from + 1024 * i));
        else
          *to = ptx::load_shared_float(from + 1024 * i);
      }
    };
    if (column == 0) element(piece, skew && piece < min(kPiece - skew, columns));
    const int tail = (columns + skew) / kPiece * kPiece - skew + piece;
    if (columns <= kBox) element(tail, tail < columns && (tail >= 0 || column > 0));
  }
};

/// A lane's `first_line` of RaggedRows.
template <class Out>
__device__ __forceinline__ Out* ragged_line(const WgmmaArguments& g, int batch, int row, int column, int lane) {
  return static_cast<Out*>(g.problem.out) +
         (static_cast<std::int64_t>(batch) * static_cast<int>(g.problem.m) + row + lane / 8) * g.problem.n + column;
}

/// Stores a warp's 16 rows of a tile to unaligned rows of C; alpha and bias only. One box at a time, so that the code stays in
/// the instruction cache; a box is converted while the lanes load the previous one from shared memory.
template <class Out, int kTileN, bool kBias>
__device__ __forceinline__ void store_ragged_tile(const float (&sums)[kTileN / 2], const WgmmaArguments& g, int row, int column,
                                                  int column_end, int batch, int lane, unsigned char* staging,
                                                  const float* shared_bias) {
  constexpr int kBoxes = (kTileN + 63) / 64;
  const float alpha = g.alpha;
  const int rows = min(16, static_cast<int>(g.problem.m) - row), r = lane % 16;
  const std::uint32_t buffers = ptx::shared_address(staging), place = static_cast<unsigned>(r * 128 + (lane / 16 ^ (r % 8)) * 16);
  const auto convert_box = [&](int box) {
    const std::uint32_t buffer = buffers + static_cast<unsigned>(box % 2 * 2048);
#pragma unroll
    for (int known = 0; known < kBoxes; ++known) {  // registers have no run-time index
      if (known != box) continue;
      __syncwarp();  // the buffer has been read; also keeps this a branch
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (64 * known + 16 * j >= kTileN) break;
        std::uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          Vector<float, 2> x;
#pragma unroll
          for (int c = 0; c < 2; ++c) x[c] = scaled(alpha, sums[32 * known + 8 * j + 2 * i + c]);
          if constexpr (kBias) {
            const auto add = load_vector<2>(shared_bias + 64 * known + 16 * j + 8 * (i / 2) + 2 * (lane % 4));
            x[0] = plus(x[0], add[0]), x[1] = plus(x[1], add[1]);
          }
          pairs[i] = rounded_pair<Out>(x[0], x[1]);
        }
        ptx::store_matrices((buffer + place) ^ static_cast<unsigned>(32 * j), pairs);
      }
    }
    __syncwarp();
  };
  Out* const line = ragged_line<Out>(g, batch, row, column, lane);
  convert_box(0);
#pragma unroll 1
  for (int at = 0; column + at < column_end; at += 64) {
    const int columns = column_end - column - at, offset = at % 128 * 32;
    int here = lane;
    asm volatile("" : "+r"(here));  // else values computed from it stay in registers, which spill
    RaggedRows<Out> upper(buffers, line, g.problem.n, rows, here, 0), lower(buffers, line, g.problem.n, rows, here, 1);
    upper.load(offset), lower.load(offset);
    upper.store_ends(buffers, offset, at, columns), lower.store_ends(buffers, offset, at, columns);
    if (columns > 64) convert_box(at / 64 + 1);
    upper.store(at, columns), lower.store(at, columns);
  }
}

}  // namespace xgemm::matmul::wgmma_detail
