// fp64: an operand's k-block on its way to a warp's registers.
#pragma once
#include <algorithm>

#include "device/ptx/cp_async.cuh"
#include "matmul/fp64_mma/geometry.h"

namespace xgemm::matmul::fp64_detail {

/// One operand's k-block in shared memory, how the producers copy it there, and how a warp reads it.
template <int kLines, bool kAlongK>
class Panel {
 public:
  static constexpr int kDoubles = kLines * kFp64TileK;

  /// `from`: the CTA's first line and k. `lines`: in bounds from there on.
  __device__ __forceinline__ Panel(const double* from, std::int64_t line_stride, std::int64_t k_stride, int lines, bool vectors) {
    const auto set = [&]<int kWidth>() {
      const int along = Pieces<kWidth>::along(), first = Pieces<kWidth>::first();
      src_ = from + along * (kAlongK ? k_stride : line_stride) + first * (kAlongK ? line_stride : k_stride);
      to_ = kAlongK ? place(first, along) : place(along, first);
      rows_ = kAlongK ? lines - first : first;
      lines_ = lines - along;
    };
    vectors ? set.template operator()<2>() : set.template operator()<1>();
  }

  /// Copies the next block. k from `depth` on is zero.
  __device__ __forceinline__ void copy(double* panel, std::int64_t line_stride, std::int64_t k_stride, int depth, bool vectors) {
    const auto move = [&]<int kWidth>() {
      using P = Pieces<kWidth>;
      const std::int64_t step = P::kStep * (kAlongK ? line_stride : k_stride);
#pragma unroll
      for (int run = 0; run < P::kRuns; ++run) {
        const int rows = kAlongK ? (P::along() < depth ? rows_ : 0) : run * P::kRun < lines_ ? depth - rows_ : 0;
        const double* src = src_ + run * P::kRun * line_stride;
#pragma unroll
        for (int i = 0; i < P::kCount; ++i, src += step) {
          constexpr int kPitch = kAlongK ? kFp64TileK : kLines;
          double* const to = panel + run * P::kRun + i * (P::kStep * kPitch) + (to_ ^ i * P::kStep % 4 * 4);  // see place()
          if constexpr (kWidth == 2)
            cp_async_or_zeros(to, src, i * P::kStep < rows);
          else
            cp_async<8>(to, src, i * P::kStep < rows ? 8 : 0);
        }
      }
    };
    vectors ? move.template operator()<2>() : move.template operator()<1>();
    src_ += kFp64TileK * k_stride;
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
  /// A thread's pieces of kWidth elements: their place in a run of a row ([line][k]: a line, [k][line]: a k), the first row, and
  /// how many rows apart they are. A row has kRuns runs.
  template <int kWidth>
  struct Pieces {
    static constexpr int kThreads = Fp64Geometry::kProducers;
    static constexpr int kRow = kAlongK ? kFp64TileK : kLines, kRows = kAlongK ? kLines : kFp64TileK;
    static constexpr int kRun = std::min(kRow & -kRow, kThreads* kWidth), kRuns = kRow / kRun, kARun = kRun / kWidth;
    static constexpr int kStep = kThreads / kARun, kCount = kRows / kStep;
    static_assert(kStep * kARun == kThreads && kCount * kStep == kRows && kCount > 0 && kRuns * kRun == kRow);
    static __device__ __forceinline__ int along() { return static_cast<int>(threadIdx.x % kARun) * kWidth; }
    static __device__ __forceinline__ int first() { return static_cast<int>(threadIdx.x % kThreads / kARun); }
  };

  /// Offset of element (line, k). Pieces of 16 bytes are swizzled by an exclusive or, so that half a warp reads all banks.
  /// Adding a multiple of 4 to the line ([line][k]), or of 16 to the line and 4 to k ([k][line]), does not change the swizzle.
  static __device__ __forceinline__ int place(int line, int k) {
    return kAlongK ? line * kFp64TileK + (k ^ line % 4 * 4) : k * kLines + (line ^ k % 4 * 4);
  }

  const double* src_;  ///< the thread's first piece of the next block
  int to_, rows_;      ///< its offset; [line][k]: lines in bounds from it on, [k][line]: its k
  int lines_;          ///< [k][line]: lines in bounds from it on
};

}  // namespace xgemm::matmul::fp64_detail
