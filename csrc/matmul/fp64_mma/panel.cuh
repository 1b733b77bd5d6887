// fp64: an operand's k-block on its way to a warp's registers.
#pragma once
#include <algorithm>

#include "device/ptx/cp_async.cuh"
#include "matmul/fp64_mma/plan.h"

namespace xgemm::matmul::fp64_detail {

/// One operand's k-block in shared memory, what this thread copies of it, and how a warp reads it.
template <int kLines, bool kAlongK, int kThreads>
class Panel {
  static constexpr int kRow = kAlongK ? kFp64TileK : kLines, kRows = kAlongK ? kLines : kFp64TileK;

 public:
  static constexpr int kDoubles = kRow * kRows;

  /// `from`: the CTA's first line and k, of `lines` and `depth` that are in bounds.
  __device__ __forceinline__ Panel(const double* from, std::int64_t line_stride, std::int64_t k_stride, int lines, int depth,
                                   bool vectors) {
    const int width = vectors ? 2 : 1, along = static_cast<int>(threadIdx.x) % (kRow / width) * width,
              first = static_cast<int>(threadIdx.x) / (kRow / width);
    src_ = from + along * (kAlongK ? k_stride : line_stride) + first * (kAlongK ? line_stride : k_stride);
    to_ = kAlongK ? place(first, along) : place(along, first);
    rows_ = (kAlongK ? lines : depth) - first, row_ = (kAlongK ? depth : lines) - along;
  }

  /// Copies the next block. What is out of bounds is zero.
  __device__ __forceinline__ void copy(double* panel, std::int64_t line_stride, std::int64_t k_stride, bool vectors) {
    const auto move = [&]<int kWidth>() {
      constexpr int kStep = kThreads * kWidth / kRow, kCount = kRows / kStep;  // the thread's rows: how far apart, how many
      static_assert(kStep * kRow == kThreads * kWidth && kCount * kStep == kRows && kCount > 0);
      const int rows = row_ > 0 ? rows_ : 0;
      const double* src = src_;
#pragma unroll
      for (int i = 0; i < kCount; ++i, src += kStep * (kAlongK ? line_stride : k_stride)) {
        double* const to = panel + i * (kStep * kRow) + (to_ ^ i * kStep % 4 * 4);  // see place()
        if constexpr (kWidth == 2)
          cp_async_or_zeros(to, src, i * kStep < rows);
        else
          cp_async<8>(to, src, i * kStep < rows ? 8 : 0);
      }
    };
    vectors ? move.template operator()<2>() : move.template operator()<1>();
    src_ += kFp64TileK * k_stride;
    (kAlongK ? row_ : rows_) -= kFp64TileK;
  }

  /// The argument of read() for a warp's lines from `line`, a multiple of 16, on.
  static __device__ __forceinline__ int reader(int line, int lane) {
    return line * (kAlongK ? kFp64TileK : 1) + place(lane / 4, lane % 4);
  }
  /// Reads a lane's part of the 8 lines from `more` on: line lane / 4 of them, k = 4 i + lane % 4.
  static __device__ __forceinline__ void read(double (&values)[4], const double* panel, int reader, int more) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      values[i] =
          kAlongK ? panel[more * kFp64TileK + (reader ^ 4 * i)] : panel[more / 16 * 16 + 4 * i * kLines + (reader ^ more % 16)];
  }

 private:
  /// Offset of element (line, k). Pieces of 16 bytes are swizzled by an exclusive or, so that half a warp reads all banks.
  /// Adding a multiple of 4 to the line ([line][k]), or of 16 to the line and 4 to k ([k][line]), does not change the swizzle.
  static __device__ __forceinline__ int place(int line, int k) {
    return kAlongK ? line * kFp64TileK + (k ^ line % 4 * 4) : k * kLines + (line ^ k % 4 * 4);
  }

  const double* src_;  ///< the thread's first piece of the next block
  int to_;             ///< its place
  int rows_, row_;     ///< rows in bounds, elements of a row in bounds, from it on
};

}  // namespace xgemm::matmul::fp64_detail
