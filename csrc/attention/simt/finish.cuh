// Attention on CUDA cores: the end of a split of the keys. Its outputs are merged with those of the splits before it, kept for
// the next, or normalised and stored.
#pragma once
#include "attention/simt/weights.cuh"

namespace xgemm::attention {

/// Merges a row's state with that of the splits before it, which this block saved.
template <int kChunk, int kColumns, class Acc>
__device__ __forceinline__ void merge_saved(Acc (&output)[kColumns], Acc& maximum, Acc& sum, const Acc* saved, Acc saved_max,
                                            Acc saved_sum) {
  const Acc both = fmax(saved_max, maximum);
  const Acc factor_before = rescale(saved_max, both), factor = rescale(maximum, both);
  maximum = both;
  sum = merged(saved_sum, factor_before, sum, factor);
#pragma unroll
  for (int c = 0; c < kColumns; c += kChunk) {
    const auto o = load_vector<kChunk>(saved + c * kLanes);
#pragma unroll
    for (int x = 0; x < kChunk; ++x) output[c + x] = merged(o[x], factor_before, output[c + x], factor);
  }
}

/// Stores a thread's columns of a row, `to`, of the result.
template <int kChunk, int kColumns, class T, class Acc>
__device__ __forceinline__ void store_row(const Acc (&output)[kColumns], T* to, int dv, Acc sum, Acc inverse) {
#pragma unroll
  for (int c = 0; c < kColumns; c += kChunk) {
    const int column = c * kLanes + static_cast<int>(threadIdx.x) % kLanes * kChunk;
    Vector<T, kChunk> o;
#pragma unroll
    for (int x = 0; x < kChunk; ++x) o[x] = convert<T>(normalised(output[c + x], sum, inverse));
    store_columns(to, column, dv, o);
  }
}

/// The end of a split, at key `key`, for one row of the tile.
template <SimtTile kTile, class C = Constants<kTile>, class Acc = typename C::Acc>
__device__ __forceinline__ void finish_tile_row(Acc (&output)[C::kColumns], const Arguments& a, const Block& b, int row, int key,
                                                bool last, Acc maximum, Acc sum) {
  const int lane = threadIdx.x % kLanes;
  const std::int64_t out = Row(a, b.batch, b.first + row).out;
  if (a.splits > 1) {
    const std::int64_t place = out + (a.parallel ? b.split * a.total_rows() : 0);
    Acc* const saved_max = static_cast<Acc*>(a.partial_max) + place;
    Acc* const saved_sum = static_cast<Acc*>(a.partial_sum) + place;
    Acc* const saved = static_cast<Acc*>(a.partial_output) + place * kTile.head_size + lane * C::kChunk;
    if (!a.parallel && key > (b.first_key / kSplitKeys + 1) * kSplitKeys)  // not the first split
      merge_saved<C::kChunk>(output, maximum, sum, saved, *saved_max, *saved_sum);
    if (a.parallel || !last) {
#pragma unroll
      for (int c = 0; c < C::kColumns; c += C::kChunk) {
        Vector<Acc, C::kChunk> o;
#pragma unroll
        for (int x = 0; x < C::kChunk; ++x) o[x] = output[c + x];
        store_vector(saved + c * kLanes, o);
      }
      __syncwarp(0xffffu << (threadIdx.x % kWarpSize / kLanes * kLanes));  // all 16 have read the state before lane 0 writes it
      if (lane == 0) *saved_max = maximum, *saved_sum = sum;
      return;
    }
  }
  const Acc keys = sum, inverse = finish_row(a, out, maximum, sum);
  with_element_type<Acc>(a.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    store_row<C::kChunk>(output, static_cast<T*>(a.output) + a.output_rows.place(out) * a.dv, a.dv, keys, inverse);
  });
  if (a.lse != nullptr && lane == 0) static_cast<Acc*>(a.lse)[out] = log_sum(maximum, sum);
}

/// The end of a split for all rows; `output` is lost. A loop that is not unrolled finds each row in output[0], in turn: else this
/// would be most of the kernel's code.
template <SimtTile kTile, class C = Constants<kTile>, class Acc = typename C::Acc>
__device__ __forceinline__ void finish_split(Acc (&output)[C::kRows][C::kColumns], const Arguments& a, const Block& b, int key,
                                             bool last, const Acc* maxima, const Acc* sums) {
#pragma unroll 1
  for (int i = 0; i < C::kRows; ++i) {
    const int row = i * kGroups + static_cast<int>(threadIdx.x) / kLanes;
    if (row < b.count) finish_tile_row<kTile>(output[0], a, b, row, key, last, maxima[i * kGroups], sums[i * kGroups]);
#pragma unroll
    for (int r = 1; r < C::kRows; ++r)
#pragma unroll
      for (int c = 0; c < C::kColumns; ++c) output[r - 1][c] = output[r][c];
  }
}

}  // namespace xgemm::attention
