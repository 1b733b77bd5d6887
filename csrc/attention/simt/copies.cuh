// Attention on CUDA cores: copies of a block's query rows and of slabs of its keys and values to shared memory.
#pragma once
#include <bit>

#include "attention/simt/block.cuh"
#include "device/ptx/cp_async.cuh"
#include "device/vector.cuh"

namespace xgemm::attention {

/// The copies in the order in which they are used: the query rows, then for every kTile.keys keys their slabs of kTile.depth head
/// dims (one even if D = 0) and the slabs of their values.
template <SimtTile kTile>
struct Copies {
  using Acc = std::conditional_t<kTile.fp64, double, float>;
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
    constexpr int kWidth = kTile.vector(), kChunks = kColumns / kWidth, kItem = sizeof(Acc);
    static_assert(kRows % (kThreads / kChunks) == 0);
    const Source x = block.sources[kOf];
    const int thread = static_cast<int>(threadIdx.x), limit = column_end - first_column;
    const int columns = min((limit + 2 * kWidth - 1) / (2 * kWidth) * (2 * kWidth), kColumns);
    const bool half_type = !kTile.fp64 && a.dtype != DType::f32, vectors = x.vector && !half_type;
    if (vectors && (kOf == kQuery ? a.group == 1 : a.sequences.table == nullptr)) {
      const int column = thread % kChunks * kWidth, bytes = max(min(limit - column, kWidth), 0) * kItem;
      const std::int64_t step = kThreads / kChunks * x.row * kItem;
      const char* from = x.data + (first + thread / kChunks) * x.row * kItem + (first_column + column) * kItem;
      if (column >= columns) return;
      if (bytes == 0) end = first;
#pragma unroll
      for (int row = 0; row < kRows; row += kThreads / kChunks, from += step) {
        const int of_tile = row + thread / kChunks;
        const bool exists = first + of_tile < end;
        cp_async<16>(tile + of_tile * kStride + column, exists ? from : x.data, exists ? bytes : 0);
      }
      return;
    }
    // Rolled loops for the others: query heads that share a key head, pages, unaligned rows; half types, of which tensor cores
    // take all common calls.
    const int width = vectors ? kWidth : 1, shift = vectors ? std::bit_width(kChunks - 1u) : std::bit_width(kColumns - 1u);
#pragma unroll 1
    for (int i = thread; i < kRows << shift; i += kThreads) {
      const int row = i >> shift, column = (i & ((1 << shift) - 1)) * width;
      if (column >= columns) continue;
      const std::int64_t of_row = column < limit ? locate(block, a, kOf, first + row, end) : -1;
      const std::int64_t at = of_row < 0 ? 0 : of_row + (first_column + column) * x.column;
      Acc* const to = tile + row * kStride + column;
      if (half_type) {
        const unsigned bits = of_row < 0 ? 0 : reinterpret_cast<const std::uint16_t*>(x.data)[at];
        *to = a.dtype == DType::f16 ? half_of<half>(bits, 0) : half_of<bf16>(bits, 0);
      } else if (vectors) {
        cp_async<16>(to, x.data + at * kItem, of_row < 0 ? 0 : min(limit - column, kWidth) * kItem);
      } else {
        cp_async<kItem>(to, x.data + at * kItem, of_row < 0 ? 0 : kItem);
      }
    }
  }
};

}  // namespace xgemm::attention
