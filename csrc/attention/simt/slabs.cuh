// Attention on CUDA cores: copies of slabs of keys and values to shared memory, and their products with a thread's rows.
#pragma once
#include "attention/simt/softmax.cuh"
#include "device/ptx/cp_async.cuh"
#include "device/vector.cuh"

namespace xgemm::attention {

/// Copies rows and columns [0, column_limit) of a source into a shared tile of kRows x kColumns, zero beyond them and in rows
/// that do not exist (columns only up to a multiple of two vectors: nothing reads further). `offset(row)` is the source row's
/// distance in elements.
template <class Acc, int kRows, int kColumns, int kStride, class Exists, class Offset>
__device__ __forceinline__ void stage(Acc* tile, const void* source, DType dtype, bool vector, std::int64_t column_stride,
                                      Exists exists, int column_limit, Offset offset) {
  constexpr int kWidth = kVectorWidth<Acc>;
  const int columns = min((column_limit + 2 * kWidth - 1) / (2 * kWidth) * (2 * kWidth), kColumns);
  with_element_type<Acc>(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const T* base = static_cast<const T*>(source);
    if (vector) {
      constexpr int kCopy = kVectorWidth<T>, kChunks = kColumns / kCopy;
      const int column = threadIdx.x % kChunks * kCopy;
      if (column >= columns) return;
#pragma unroll 4
      for (int row = threadIdx.x / kChunks; row < kRows; row += kThreads / kChunks) {
        const T* from = exists(row) && column < column_limit ? base + offset(row) + column : base;
        Acc* to = tile + row * kStride + column;
        if constexpr (std::is_same_v<T, Acc>) {
          const int valid = exists(row) ? min(column_limit - column, kCopy) : 0;
          cp_async<16>(to, from, max(valid, 0) * static_cast<int>(sizeof(T)));
        } else {
          Vector<T, kCopy> in = {};
          if (exists(row) && column < column_limit) in = load_vector<kCopy>(from);
#pragma unroll
          for (int i = 0; i < kCopy; i += kWidth) {
            Vector<Acc, kWidth> out;
#pragma unroll
            for (int j = 0; j < kWidth; ++j) out[j] = convert<Acc>(in[i + j]);
            store_vector(to + i, out);
          }
        }
      }
    } else {
      constexpr int kColumnThreads = kColumns < 32 ? kColumns : 32;
      for (int column = threadIdx.x % kColumnThreads; column < columns; column += kColumnThreads) {
        const T* from = base + (column < column_limit ? column : 0) * column_stride;
#pragma unroll 4
        for (int row = threadIdx.x / kColumnThreads; row < kRows; row += kThreads / kColumnThreads) {
          const bool valid = exists(row) && column < column_limit;
          Acc* to = tile + row * kStride + column;
          if constexpr (std::is_same_v<T, Acc>)
            cp_async<sizeof(T)>(to, valid ? from + offset(row) : base, valid ? sizeof(T) : 0);
          else
            *to = valid ? convert<Acc>(from[offset(row)]) : Acc(0);
        }
      }
    }
  });
}

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
