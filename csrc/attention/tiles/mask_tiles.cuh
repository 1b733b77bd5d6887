// Classifies a mask for the tensor-core kernel, one CTA per tile of rows by tile of keys, and packs a boolean one.
//
//   Operands  the mask with any strides, bool, half, bf16 or fp32. Threads: two per row of the tile.
//   Results   MaskArguments::classes; for bool also MaskArguments::bits, in the order of wgmma's accumulators.
//   Floor     reads the mask once, without broadcast dims; writes an eighth of a byte per element (bool).
#pragma once
#include "attention/tiles/arguments.h"
#include "attention/tiles/tile.h"
#include "device/numeric.cuh"
#include "device/ptx/grid.cuh"
#include "device/vector.cuh"

namespace xgemm::attention {

/// Bit i: is byte i of the word not 0?
__device__ __forceinline__ unsigned nonzero_bytes(unsigned word) {
  const unsigned tops = (word | ((word & 0x7f7f7f7fu) + 0x7f7f7f7fu)) >> 7 & 0x01010101u;
  return tops * 0x10204080u >> 28;
}

/// What a mask does to the scores of some keys.
struct MaskEffect {
  bool opens = false, closes = false, changes = false;  ///< some key is seen; some key is not; some score changes

  template <class M>
  __device__ __forceinline__ void see(M element) {
    const auto value = convert<float>(element);
    closes |= value == -INFINITY, opens |= value != -INFINITY, changes |= value != 0.f;
  }
};

/// A row's keys in a tile in chunks of 16; two threads take turns at them.
template <int kKeys>
struct MaskRow {
  static constexpr int kChunks = kKeys / 16, kMine = (kChunks + 1) / 2;
  std::int64_t at, column;  ///< of this thread's first key; from one key to the next
  int first;                ///< this thread's first chunk
  int keys;                 ///< in bounds, from there on
  bool vector;              ///< may chunks be loaded as vectors?

  /// Calls f(i, full) for this thread's chunks, the i-th of which begins 32 i keys after the first. Loads and looks at whole
  /// chunks kAtATime at a time: load(i, place) and look(i, place); at others element by element: one(i, key of the chunk).
  template <int kAtATime, class Load, class Look, class One>
  __device__ __forceinline__ void walk(const Load& load, const Look& look, const One& one) const {
    if (vector && keys >= kKeys - 16 * first) {
#pragma unroll
      for (int from = 0; from < kMine; from += kAtATime) {
#pragma unroll
        for (int i = from; i < from + kAtATime && i < kMine; ++i)
          if (2 * i + 1 < kChunks || first == 0) load(i, i - from);
#pragma unroll
        for (int i = from; i < from + kAtATime && i < kMine; ++i)
          if (2 * i + 1 < kChunks || first == 0) look(i, i - from);
      }
    } else {
#pragma unroll 1
      for (int i = 0; 2 * i + first < kChunks; ++i)
#pragma unroll 1
        for (int k = 0; k < min(keys - 32 * i, 16); ++k) one(i, k);
    }
  }
};

/// An additive mask of M.
template <class M, int kKeys>
__device__ __forceinline__ void look(MaskEffect& effect, const void* mask, const MaskRow<kKeys>& row) {
  constexpr int kWidth = kVectorWidth<M>, kVectors = 16 / kWidth, kAtATime = kVectors == 4 ? 1 : 2;
  const M* const from = static_cast<const M*>(mask) + row.at;
  Vector<M, kWidth> vectors[kAtATime][kVectors];
  row.template walk<kAtATime>(
      [&](int i, int place) {
#pragma unroll
        for (int v = 0; v < kVectors; ++v) vectors[place][v] = load_vector<kWidth>(from + 32 * i + v * kWidth);
      },
      [&](int, int place) {
#pragma unroll
        for (int k = 0; k < 16; ++k) effect.see(vectors[place][k / kWidth][k % kWidth]);
      },
      [&](int i, int k) { effect.see(from[(32 * i + k) * row.column]); });
}

template <int kRows, int kKeys>
__global__ void __launch_bounds__(2 * kRows, 1024 / (2 * kRows)) classify_mask(const __grid_constant__ MaskTilesArguments m) {
  using Row = MaskRow<kKeys>;
  __shared__ std::uint32_t seen[kRows][Row::kMine];  // a bit per key
  ptx::grid_release();
  const auto& strides = m.mask.strides;
  const int mask_tile = m.key_tiles.divide(static_cast<int>(blockIdx.x));
  const int n = static_cast<int>(blockIdx.x) - mask_tile * m.mask.key_tiles;
  const int heads = m.row_tiles.divide(mask_tile), row_tile = mask_tile - heads * static_cast<int>(m.row_tiles.divisor);
  const int batches = m.heads.divide(heads), tile_head = heads - batches * static_cast<int>(m.heads.divisor);
  const int outer = m.inner.divide(batches), inner = batches - outer * static_cast<int>(m.inner.divisor);
  const int in_tile = static_cast<int>(threadIdx.x) / 2, packed_row = row_tile * m.tile_rows + in_tile;
  const int position = m.pack.divide(packed_row), head = tile_head + packed_row - position * static_cast<int>(m.pack.divisor);
  Row row{.column = strides.column, .first = static_cast<int>(threadIdx.x) % 2, .vector = m.vector};
  const int key = n * kKeys + 16 * row.first;
  row.keys = in_tile < m.tile_rows && packed_row < m.rows ? min(m.sk - key, kKeys - 16 * row.first) : 0;
  row.at = outer * strides.outer + inner * strides.inner + head * strides.head + position * strides.row + key * strides.column;

  MaskEffect effect;
  if (m.mask.dtype == DType::boolean) {
    const auto* const from = static_cast<const unsigned char*>(m.mask.values) + row.at;
    auto* const chunks = reinterpret_cast<std::uint16_t*>(seen[in_tile]) + row.first;
    Vector<unsigned, 4> words[Row::kMine];
#pragma unroll
    for (int i = 0; i < Row::kMine; ++i) chunks[2 * i] = 0;
    row.template walk<Row::kMine>(
        [&](int i, int place) { words[place] = load_vector<4>(reinterpret_cast<const unsigned*>(from + 32 * i)); },
        [&](int i, int place) {
          unsigned bits = 0;
#pragma unroll
          for (int w = 0; w < 4; ++w) bits |= nonzero_bytes(words[place][w]) << (4 * w);
          effect.opens |= bits != 0, effect.closes |= bits != 0xffffu;
          chunks[2 * i] = static_cast<std::uint16_t>(bits);
        },
        [&](int i, int k) {
          const bool open = from[(32 * i + k) * row.column] != 0;
          effect.opens |= open, effect.closes |= !open;
          chunks[2 * i] |= static_cast<std::uint16_t>(open << k);
        });
  } else if (m.mask.dtype == DType::f32) {
    look<float>(effect, m.mask.values, row);
  } else if (m.mask.dtype == DType::f16) {
    look<half>(effect, m.mask.values, row);
  } else {
    look<bf16>(effect, m.mask.values, row);
  }
  const bool opens = __syncthreads_or(effect.opens), closes = __syncthreads_or(effect.closes),
             changes = __syncthreads_or(effect.changes);
  if (threadIdx.x == 0) m.mask.classes[blockIdx.x] = !opens ? kEmpty : closes || changes ? kMixed : kFull;
  if (m.mask.dtype != DType::boolean) return;

  const int lane = static_cast<int>(threadIdx.x) % 32, first_row = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
  unsigned words[2] = {0, 0};
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int i = 0; i < Row::kMine; ++i) {
      // Of 32 keys: this lane's bits, two of each byte, next to each other in the highest byte.
      const unsigned bits = (seen[first_row + 8 * h][i] >> (2 * (lane % 4)) & 0x03030303u) * 0x01041040u;
      words[h] |= bits >> 24 << (8 * i);
    }
  m.mask.bits[static_cast<std::int64_t>(blockIdx.x) * (2 * kRows) + threadIdx.x] = {words[0], words[1]};
}

}  // namespace xgemm::attention
