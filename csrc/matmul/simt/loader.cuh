// Arguments of the CUDA-core kernels (simt, gemv), and simt's loads of its operands.
#pragma once
#include "matmul/epilogue/quad.cuh"
#include "matmul/launch.h"

namespace xgemm::matmul {

/// Direction of quads: along k (transposed on their way to shared memory) or along the lines. Hot instantiations know it at
/// compile time (6 % faster), the others read it from Access.
enum class Along { k, lines, runtime };

/// How the quads of one operand are loaded; decided on the host for the whole problem.
struct Access {
  std::int64_t line_stride;  ///< between rows of A, columns of B
  std::int64_t k_stride;
  bool along_k;  ///< quads run along k (else along the lines)
};

struct SimtArguments {
  Problem problem;
  Access a{}, b{};
  std::int64_t chunk = 0, chunks, splits;
  void* partial;       ///< [chunk][batch][m][n] sums, when splits > 1
  FailedPairs only{};  ///< fp32: the elements to write
  bool exact = false;  ///< gemv: each sum's rounding error lies `chunks` further on in `partial` (plan.h)
};

namespace simt {

/// Moves one operand's tile of kLines x kDepth from global to shared memory ([k][line], lines padded) with kThreads threads, in
/// quads. kVector: every quad is one aligned access, wholly in or out of bounds.
template <class T, int kLines, int kDepth, int kThreads, bool kVector, Along kAlong>
class Loader {
 public:
  static constexpr int kQuads = kLines * kDepth / 4 / kThreads;
  static_assert(kQuads * kThreads * 4 == kLines * kDepth, "every thread moves the same number of quads");
  static constexpr int kPitch = kLines + 4;  // quads along k are stored without (16-deep tiles: with 2-way) bank conflicts

  /// `base`: element (first line of the tile, k = 0). `lines`: lines of the tile that exist.
  __device__ __forceinline__ Loader(const T* base, const Access& access, int lines)
      : base_(base), access_(access), lines_(lines) {}

  /// The next fetch() reads at k.
  __device__ __forceinline__ void seek(std::int64_t k) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const Position at = position(i);
      next_[i] = base_ + at.line * access_.line_stride + (k + at.k) * access_.k_stride;
    }
  }

  /// Reads the next tile to registers; elements `depth` or deeper are zero.
  __device__ __forceinline__ void fetch(int depth) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const Position at = position(i);
      if constexpr (kVector) {
#pragma unroll
        for (int j = 0; j < 4; ++j) registers_[i].v[j] = T(0);
        if (at.line < lines_ && at.k < depth) registers_[i] = load_quad(next_[i]);
      } else {
        const int inside = along_k() ? (at.line < lines_ ? depth - at.k : 0) : (at.k < depth ? lines_ - at.line : 0);
        const std::int64_t step = along_k() ? access_.k_stride : access_.line_stride;
#pragma unroll
        for (int j = 0; j < 4; ++j) registers_[i].v[j] = j < inside ? next_[i][j * step] : T(0);
      }
      next_[i] += kDepth * access_.k_stride;
    }
  }

  /// Stores the fetched tile to `tile`.
  __device__ __forceinline__ void store(T* tile) const {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const Position at = position(i);
      T* p = tile + at.k * kPitch + at.line;
      if (along_k()) {
#pragma unroll
        for (int j = 0; j < 4; ++j) p[j * kPitch] = registers_[i].v[j];
      } else {
        store_quad(p, registers_[i]);
      }
    }
  }

 private:
  struct Position {
    int line, k;
  };
  __device__ __forceinline__ bool along_k() const { return kAlong == Along::runtime ? access_.along_k : kAlong == Along::k; }
  /// Neighbouring threads take neighbouring quads along the contiguous direction.
  __device__ __forceinline__ Position position(int i) const {
    const int q = static_cast<int>(threadIdx.x) + i * kThreads;
    return along_k() ? Position{q / (kDepth / 4), q % (kDepth / 4) * 4} : Position{q % (kLines / 4) * 4, q / (kLines / 4)};
  }

  const T* base_;
  const Access& access_;
  int lines_;
  const T* next_[kQuads];
  Quad<T> registers_[kQuads];
};

}  // namespace simt

}  // namespace xgemm::matmul
