// Attention on CUDA cores: copies of a block's query rows and of slabs of its keys and values to shared memory.
#pragma once
#include "attention/simt/block.cuh"
#include "device/ptx/cp_async.cuh"
#include "device/vector.cuh"

namespace xgemm::attention {

/// The copies in the order in which they are used: the query rows, then for every kTile.keys keys their slabs of kTile.depth head
/// dims (one even if D = 0) and the slabs of their values.
template <SimtTile kTile>
struct Copies {
  using Acc = std::conditional_t<kTile.fp64, double, float>;
  static constexpr int kScalarUnroll = 4;
  static constexpr int kQueryColumns = kTile.head_size < 64 ? kTile.head_size : 64;

  const SimtArguments& a;
  const Block& block;
  Acc *queries, *slabs;
  int key, slab = 0, buffer = 0;

  __device__ __forceinline__ Copies(const SimtArguments& a, const Block& block, Acc* queries, Acc* slabs)
      : a(a), block(block), queries(queries), slabs(slabs), key(block.first_key), slab(-query_slabs()) {}
  __device__ __forceinline__ int query_slabs() const { return (max(a.d, 1) + kQueryColumns - 1) / kQueryColumns; }
  __device__ __forceinline__ int key_slabs() const { return max((a.d + kTile.depth - 1) / kTile.depth, 1); }
  /// Of the keys from `key` on.
  __device__ __forceinline__ int value_slabs(int key) const {
    return (min(kTile.keys, block.end_key - key) + kTile.value_rows() - 1) / kTile.value_rows();
  }

  /// Starts the next copy, if there is one left.
  __device__ __forceinline__ void start() {
    if (key < block.end_key) {
      Acc* const to = slabs + buffer * kTile.slab();
      if (slab < 0) {
        const int column = (slab + query_slabs()) * kQueryColumns;
        copy<kQuery, kTile.rows(), kQueryColumns, kTile.query_stride()>(queries + column, block.first, block.first + block.count,
                                                                        column, a.d);
      } else if (slab < key_slabs()) {
        copy<kKey, kTile.keys, kTile.depth, kTile.key_stride()>(to, key, block.end_key, slab * kTile.depth, a.d);
      } else {
        copy<kValue, kTile.value_rows(), kTile.head_size, kTile.head_size>(to, key + (slab - key_slabs()) * kTile.value_rows(),
                                                                           block.end_key, 0, a.dv);
      }
      if (slab >= 0) buffer ^= 1;
      if (++slab == key_slabs() + value_slabs(key)) slab = 0, key += kTile.keys;
    }
    cp_async_commit();
  }

  /// Rows [first, end) and columns [first_column, column_end) of an operand to a tile of kRows x kColumns, with zeros beyond them
  /// and in rows that do not exist (columns only up to a multiple of two vectors: nothing reads further).
  template <SourceIndex kOf, int kRows, int kColumns, int kStride>
  __device__ __forceinline__ void copy(Acc* tile, int first, int end, int first_column, int column_end) {
    constexpr int kWidth = kTile.vector(), kChunks = kColumns / kWidth;
    const Source& x = block.sources[kOf];
    const int thread = static_cast<int>(threadIdx.x), limit = column_end - first_column;
    const int columns = min((limit + 2 * kWidth - 1) / (2 * kWidth) * (2 * kWidth), kColumns);
    const char* const data = x.data;
    const bool half_type = !kTile.fp64 && a.dtype != DType::f32;
    if (x.vector && !half_type) {
      const int column = thread % kChunks * kWidth, bytes = max(min(limit - column, kWidth), 0) * static_cast<int>(sizeof(Acc));
      if (column >= columns) return;
#pragma unroll 4
      for (int row = thread / kChunks; row < kRows; row += kThreads / kChunks) {
        const std::int64_t at = locate(block, a, kOf, first + row, end);
        const bool exists = at >= 0 && bytes > 0;
        cp_async<16>(tile + row * kStride + column,
                     data + (exists ? at + first_column + column : 0) * static_cast<std::int64_t>(sizeof(Acc)),
                     exists ? bytes : 0);
      }
      return;
    }
    // One element at a time. Tensor cores take half types in all common calls.
#pragma unroll 1
    for (int column = thread % kTile.depth; column < columns; column += kTile.depth)
#pragma unroll kScalarUnroll
      for (int row = thread / kTile.depth; row < kRows; row += kThreads / kTile.depth) {
        const std::int64_t of_row = column < limit ? locate(block, a, kOf, first + row, end) : -1;
        const std::int64_t at = of_row < 0 ? 0 : of_row + (first_column + column) * x.column;
        Acc* const to = tile + row * kStride + column;
        if (half_type) {
          const unsigned bits = of_row < 0 ? 0 : reinterpret_cast<const std::uint16_t*>(data)[at];
          *to = a.dtype == DType::f16 ? __half2float(__ushort_as_half(bits)) : __uint_as_float(bits << 16);
        } else {
          cp_async<sizeof(Acc)>(to, data + at * static_cast<std::int64_t>(sizeof(Acc)), of_row < 0 ? 0 : sizeof(Acc));
        }
      }
  }
};

}  // namespace xgemm::attention
