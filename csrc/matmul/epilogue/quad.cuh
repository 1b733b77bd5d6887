// Quads of sums in shared memory and in rows of C: how mma, tf32, bf16x3, sliced, simt and splits of K are stored.
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

/// Stores `count` or fewer sums from (row, col) on of C's batch; `out`: the batch's.
template <class T>
__device__ __forceinline__ void store_sums(const Epilogue<T, float>& e, T* out, std::int64_t n, const Quad<float>& sums, int row,
                                           int col, int count) {
  store_row_quad(out + row * n + col, e.template quad<T>(sums, row, col, min(4, count)), count, n);
}

/// A quad of sums in shared memory, and where in C it goes.
struct StagedQuad {
  const float* from;
  int row, col;
};

/// Stores kQuads quads that a warp has staged, with any epilogue; `quad(i)`: the i-th. Two quads a lane: their chains of
/// instructions overlap.
template <class T, int kQuads, class F>
__device__ __forceinline__ void store_staged(const Problem& p, int batch, int lane, const F& quad) {
  static_assert(kQuads % 64 == 0);
  const auto e = make_epilogue<T, float>(p, batch);
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n);
  T* const out = static_cast<T*>(p.out) + static_cast<std::int64_t>(batch) * m * p.n;
#pragma unroll 1
  for (int i = lane; i < kQuads; i += 64) {
    const StagedQuad quads[2] = {quad(i), quad(i + 32)};
    float x[8];
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      const auto sums = load_quad(quads[q].from);
#pragma unroll
      for (int j = 0; j < 4; ++j) x[4 * q + j] = scaled(e.alpha, sums.v[j]);
    }
    const auto row = [&](int v) { return std::int64_t{min(quads[v / 4].row, m - 1)}; };
    const auto col = [&](int v) { return std::int64_t{min(quads[v / 4].col + v % 4, n - 1)}; };
    apply<T>(
        x, e, [&](int v) { return e.c[row(v) * e.c_row + col(v) * e.c_col]; }, [&](int v) { return e.bias[col(v) * e.bias_col]; },
        [&](int v) { return e.residual[row(v) * e.residual_row + col(v) * e.residual_col]; });
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      const int count = quads[q].row < m ? n - quads[q].col : 0;
      if (count <= 0) continue;
      Quad<T> results;
#pragma unroll
      for (int j = 0; j < 4; ++j) results.v[j] = convert<T>(x[4 * q + j]);
      store_row_quad(out + quads[q].row * p.n + quads[q].col, results, count, p.n);
    }
  }
}

}  // namespace xgemm::matmul
