// What the steps share: which tile a block owns, and how an element leaves or four elements arrive.
#pragma once
#include "device/vector.cuh"
#include "lab/sgemm/sgemm.h"

namespace xgemm::lab::sgemm {

using Float4 = Vector<float, 4>;

inline unsigned ceil_div(int a, int b) { return (static_cast<unsigned>(a) + b - 1) / b; }

/// alpha * sum + beta * old, with the multiply-add written out: left to the compiler, steps would round differently.
__device__ __forceinline__ float scaled(const Problem& p, float sum, float old) {
  return p.beta == 0 ? p.alpha * sum : fmaf(p.beta, old, p.alpha * sum);
}

/// alpha * sum + beta * C[row][col] into out, if the element exists.
__device__ __forceinline__ void store(const Problem& p, int row, int col, float sum) {
  if (row >= p.m || col >= p.n) return;
  const std::int64_t i = static_cast<std::int64_t>(row) * p.n + col;
  p.out[i] = scaled(p, sum, p.beta == 0 ? 0.0f : p.c[i]);
}

/// x[row][col], or 0 outside the matrix: zeros add nothing to a product.
__device__ __forceinline__ float load(const float* x, int row, int col, int rows, int cols) {
  return row < rows && col < cols ? x[static_cast<std::int64_t>(row) * cols + col] : 0.0f;
}

/// x[row][col .. col + 3] with zeros outside. kVector: cols % 4 == 0 and x is 16-byte aligned, so a group is wholly in or out.
template <bool kVector>
__device__ __forceinline__ Float4 load4(const float* x, int row, int col, int rows, int cols) {
  Float4 v{};
  if constexpr (kVector) {
    if (row < rows && col < cols) v = load_vector<4>(x + static_cast<std::int64_t>(row) * cols + col);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = load(x, row, col + j, rows, cols);
  }
  return v;
}

/// store() for four neighbours; kVector as in load4, for C and out.
template <bool kVector>
__device__ __forceinline__ void store4(const Problem& p, int row, int col, const float (&sum)[4]) {
  if constexpr (kVector) {
    if (row >= p.m || col >= p.n) return;
    const std::int64_t i = static_cast<std::int64_t>(row) * p.n + col;
    const Float4 old = p.beta == 0 ? Float4{} : load_vector<4>(p.c + i);
    Float4 v;
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = scaled(p, sum[j], old[j]);
    store_vector(p.out + i, v);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) store(p, row, col + j, sum[j]);
  }
}

/// May every access to this problem be made four elements at a time?
inline bool is_vectorisable(const Problem& p) {
  return p.n % 4 == 0 && p.k % 4 == 0 && is_aligned(p.a, 16) && is_aligned(p.b, 16) && is_aligned(p.out, 16) &&
         (p.beta == 0 || is_aligned(p.c, 16));
}

/// A block a tile of C; four elements at a time where that may be.
template <auto kVectors, auto kElements, int kBM, int kBN, int kThreads>
void launch_tiles(const Problem& p, cudaStream_t stream) {
  const auto kernel = is_vectorisable(p) ? kVectors : kElements;
  kernel<<<ceil_div(p.m, kBM) * ceil_div(p.n, kBN), kThreads, 0, stream>>>(p);
}

}  // namespace xgemm::lab::sgemm
