// Attention on CUDA cores: products of slabs of keys and values in shared memory with a thread's rows.
#pragma once
#include "attention/simt/softmax.cuh"
#include "device/vector.cuh"

namespace xgemm::attention {

/// Registers of a thread: rows i * kGroups + group of the tile, outputs c * (16 * kChunk) + lane * kChunk + w.
template <SimtTile kTile>
struct Constants {
  using Acc = std::conditional_t<kTile.fp64, double, float>;
  static constexpr int kRows = kTile.thread_rows;
  static constexpr int kKeys = kTile.keys / kLanes;
  static constexpr int kColumns = kTile.head_size / kLanes;
  static constexpr int kWidth = kTile.vector();
  static constexpr int kChunk = kColumns < kWidth ? kColumns : kWidth;
  static_assert(kSplitKeys % kTile.keys == 0 && kTile.depth % (2 * kWidth) == 0 && kTile.value_rows() % (2 * kWidth) == 0);
  static_assert(kTile.value_rows() * kTile.head_size <= kTile.slab() && kTile.keys % kTile.value_rows() == 0);
};

/// scores += query rows * key slab^T over `depth` head dims (a multiple of two vectors).
template <SimtTile kTile, class C = Constants<kTile>, class Acc = typename C::Acc>
__device__ __forceinline__ void multiply_keys(Acc (&scores)[C::kRows][C::kKeys], const Acc* queries, const Acc* keys, int depth) {
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  queries += group * kTile.query_stride();
  keys += lane * kTile.key_stride();
  for (int d = 0; d < depth; d += 2 * C::kWidth) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Vector<Acc, C::kWidth> q[C::kRows];
#pragma unroll
      for (int i = 0; i < C::kRows; ++i)
        q[i] = load_vector<C::kWidth>(queries + i * kGroups * kTile.query_stride() + d + half * C::kWidth);
#pragma unroll
      for (int j = 0; j < C::kKeys; ++j) {
        const auto k = load_vector<C::kWidth>(keys + j * kLanes * kTile.key_stride() + d + half * C::kWidth);
#pragma unroll
        for (int w = 0; w < C::kWidth; ++w)
#pragma unroll
          for (int i = 0; i < C::kRows; ++i) scores[i][j] = fma(q[i][w], k[w], scores[i][j]);
      }
    }
  }
}

/// output += weights of one value slab's keys * value slab.
template <SimtTile kTile, class C = Constants<kTile>, class Acc = typename C::Acc>
__device__ __forceinline__ void multiply_values(Acc (&output)[C::kRows][C::kColumns], const Acc* weights, const Acc* values) {
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  weights += group * kTile.weight_stride();
  values += lane * C::kChunk;
#pragma unroll 2
  for (int key = 0; key < kTile.value_rows(); key += C::kWidth) {
    Vector<Acc, C::kWidth> p[C::kRows];
#pragma unroll
    for (int i = 0; i < C::kRows; ++i) p[i] = load_vector<C::kWidth>(weights + i * kGroups * kTile.weight_stride() + key);
#pragma unroll
    for (int w = 0; w < C::kWidth; ++w)
#pragma unroll
      for (int c = 0; c < C::kColumns; c += C::kChunk) {
        const auto v = load_vector<C::kChunk>(values + (key + w) * kTile.head_size + c * kLanes);
#pragma unroll
        for (int x = 0; x < C::kChunk; ++x)
#pragma unroll
          for (int i = 0; i < C::kRows; ++i) output[i][c + x] = fma(p[i][w], v[x], output[i][c + x]);
      }
  }
}

}  // namespace xgemm::attention
