// Quads of sums in shared memory and in rows of C.
#pragma once
#include "device/vector.cuh"
#include "matmul/epilogue/apply.cuh"

namespace xgemm::matmul {

template <class Acc>
__device__ __forceinline__ Quad<Acc> load_quad(const Acc* p) {
  Quad<Acc> q;
  constexpr int kWidth = kVectorWidth<Acc> < 4 ? kVectorWidth<Acc> : 4;
#pragma unroll
  for (int i = 0; i < 4; i += kWidth) {
    const auto part = load_vector<kWidth>(p + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) q.v[i + j] = part[j];
  }
  return q;
}

template <class Acc>
__device__ __forceinline__ void store_quad(Acc* p, const Quad<Acc>& q) {
  constexpr int kWidth = kVectorWidth<Acc> < 4 ? kVectorWidth<Acc> : 4;
#pragma unroll
  for (int i = 0; i < 4; i += kWidth) {
    Vector<Acc, kWidth> part;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) part[j] = q.v[i + j];
    store_vector(p + i, part);
  }
}

/// The results of `sum`: up to `count` neighbours from (row, col) on. `plain`: nothing but alpha in the epilogue; a path of its
/// own, because loading the other one's code takes long and may push a main loop out of the instruction cache.
__device__ __forceinline__ Quad<float> finished_quad(const Problem& p, bool plain, int batch, int row, int col,
                                                     const Quad<float>& sum, int count) {
  if (!plain) {
    const auto epilogue = batch ? make_epilogue<float, float>(p, batch) : make_epilogue_at<float, float>(p);
    return epilogue.template quad<float>(sum, row, col, count);
  }
  const auto alpha = static_cast<float>(p.alpha);
  return {{scaled(alpha, sum.v[0]), scaled(alpha, sum.v[1]), scaled(alpha, sum.v[2]), scaled(alpha, sum.v[3])}};
}

/// Writes up to `count` elements of a quad of a row of length n; one access if the row is aligned.
template <class T>
__device__ __forceinline__ void store_row_quad(T* p, const Quad<T>& q, int count, std::int64_t n) {
  if (n % 4 == 0) {  // the base is the allocator's, so every quad of every row is aligned and whole
    store_quad(p, q);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (j < count) p[j] = q.v[j];
  }
}

}  // namespace xgemm::matmul
