// Masks of a CTA's split of the keys: which tiles of keys its rows see, and a boolean mask's bits, in shared memory; then their
// effect on a warp's 16 rows by 16 keys. A split is short enough that its CTA looks through the mask itself.
//
// Floor: reads the mask of the split once more than it is applied, without broadcast dims.
#pragma once
#include "attention/mma/arguments.h"
#include "attention/mma/tile.h"
#include "attention/tiles/mask.cuh"
#include "attention/tiles/mask_tiles.cuh"
#include "attention/tiles/sequences.cuh"

namespace xgemm::attention {

template <int kKeys, Masking kMasking>
struct SplitMask {
  __device__ __forceinline__ SplitMask(const MmaArguments&, const TileOf<kMasking>&) {}
};

template <int kKeys>
struct SplitMask<kKeys, Masking::additive> {
  static constexpr int kChunks = kMmaMaskTiles * kKeys / 16;  // of 16 keys: kMmaUnitKeys
  static constexpr int kPitch = kChunks + 2;                  // the rows that lanes read together are in different banks
  int first;                                                  ///< tile of keys
  unsigned seen = 0, mixed = 0;  ///< bit i: does a row see a key of tile first + i; does the mask change a score?
  int rows;                      ///< with masks of their own, or one
  const std::uint16_t* bits;     ///< boolean mask: [row][chunk], a bit per key

  /// Called by all threads of the CTA.
  __device__ __forceinline__ SplitMask(const MmaArguments& g, const RowTile& tile)
      : first((tile.split + g.first_split) * g.split_tiles), rows(g.mask_rows ? g.partial_rows : 1) {
    __shared__ std::uint16_t memory[kMmaRows * kPitch];
    __shared__ unsigned effects[2][kMmaWarps];
    bits = memory;
    const auto look = [&](auto type) { look_at<typename decltype(type)::type>(g, tile, memory); };
    g.mask.dtype == DType::boolean ? look(Type<unsigned char>{}) : with_element_type(g.mask.dtype, look);
    const auto join = [](unsigned a, unsigned b) { return a | b; };
    const unsigned of_warp[2] = {warp_reduce(seen, join), warp_reduce(mixed, join)};
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x % 32 == 0) effects[0][warp] = of_warp[0], effects[1][warp] = of_warp[1];
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kMmaWarps; ++w) seen |= effects[0][w], mixed |= effects[1][w];
  }

 private:
  template <class M>
  __device__ __forceinline__ void look_at(const MmaArguments& g, const RowTile& tile, std::uint16_t* memory) {
    constexpr int kWidth = kVectorWidth<M>;
    const auto& strides = g.mask.strides;
    const int begin = first * kKeys, chunks = (min(g.split_tiles * kKeys, g.sk - begin) + 15) / 16;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < rows * chunks; i += kMmaThreads) {
      const int row = i / chunks, chunk = i - row * chunks, key = begin + 16 * chunk, keys = min(g.sk - key, 16);
      const int position = g.pack.divide(row), head = tile.head + row - position * static_cast<int>(g.pack.divisor);
      const M* const from = static_cast<const M*>(g.mask.values) + tile.outer * strides.outer + tile.inner * strides.inner +
                            head * strides.head + position * strides.row + key * strides.column;
      MaskEffect effect;
      unsigned open = 0;
      const auto see = [&](int k, M element) {
        if constexpr (sizeof(M) == 1)
          open |= static_cast<unsigned>(element != 0) << k;
        else
          effect.see(element);
      };
      if (g.mask_vector && keys == 16) {
        Vector<M, kWidth> vectors[16 / kWidth];
#pragma unroll
        for (int v = 0; v < 16 / kWidth; ++v) vectors[v] = load_vector<kWidth>(from + v * kWidth);
#pragma unroll
        for (int k = 0; k < 16; ++k) see(k, vectors[k / kWidth][k % kWidth]);
      } else {
#pragma unroll 1
        for (int k = 0; k < keys; ++k) see(k, from[k * strides.column]);
      }
      if constexpr (sizeof(M) == 1) {
        memory[row * kPitch + chunk] = static_cast<std::uint16_t>(open);
        effect.opens = open != 0, effect.closes = open != (1u << keys) - 1;
      }
      const unsigned of_tile = 1u << (16 * chunk / kKeys);
      if (effect.opens) seen |= of_tile;
      if (effect.closes || effect.changes) mixed |= of_tile;
    }
  }
};

/// The tiles of keys of a split that its rows see, from the last to the first.
template <int kKeys, Masking kMasking>
struct SplitKeys : KeyWalk<kKeys, kMasking> {
  template <class Arguments, class Tile>
  __device__ __forceinline__ SplitKeys(const Arguments& g, const Tile& tile, const SplitMask<kKeys, kMasking>&)
      : KeyWalk<kKeys, kMasking>(g, tile) {}
};

template <int kKeys>
struct SplitKeys<kKeys, Masking::additive> : KeyWalk<kKeys, Masking::edges> {
  int first;
  unsigned left, changed;  ///< tiles after the current one; those of which the mask changes scores

  __device__ __forceinline__ SplitKeys(const MmaArguments& g, const RowTile& tile,
                                       const SplitMask<kKeys, Masking::additive>& mask)
      : KeyWalk<kKeys, Masking::edges>(g, tile), first(mask.first), left(mask.seen), changed(mask.mixed) {
    const int tiles = this->n + 1 - first;
    if (tiles < kMmaMaskTiles) left &= (1u << max(tiles, 0)) - 1;
    next();
  }
  __device__ __forceinline__ void next() {
    const int last = 31 - __clz(static_cast<int>(left));
    this->n = left == 0 ? this->begin - 1 : first + last;
    left &= ~(1u << (last & 31));
  }
  __device__ __forceinline__ bool on_mask() const { return (changed >> ((this->n - first) & 31) & 1) != 0; }
};

/// The mask on a warp's unit: boolean bits, or additive values in natural units (tiles/mask.cuh).
template <int kKeys, Masking kMasking>
struct UnitMask {
  __device__ __forceinline__ UnitMask(const MmaArguments&, const RowTile&, const int (&)[2], const SplitMask<kKeys, kMasking>&) {}
  __device__ __forceinline__ void load(const MmaArguments&, int, int, bool, bool) {}
  __device__ __forceinline__ void apply(float (&)[kMmaUnitKeys / 2], const MmaArguments&) const {}
};

template <int kKeys>
struct UnitMask<kKeys, Masking::additive> {
  static constexpr int kUnits = kKeys / kMmaUnitKeys;
  TileMask<kMmaUnitKeys, Masking::additive> values;
  const std::uint16_t* bits[2];  ///< of this thread's rows and tile 0 of all keys
  unsigned words[2];             ///< from this thread's first key on

  __device__ __forceinline__ UnitMask(const MmaArguments& g, const RowTile& tile, const int (&rows)[2],
                                      const SplitMask<kKeys, Masking::additive>& mask)
      : values(g, tile, rows, kMmaRows) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      bits[h] =
          mask.bits + min(rows[h] - tile.row, mask.rows - 1) * SplitMask<kKeys, Masking::additive>::kPitch - mask.first * kUnits;
  }
  /// Loads unit `unit` of tile `n`. `inside`: all keys of the tile are in bounds.
  __device__ __forceinline__ void load(const MmaArguments& g, int n, int unit, bool mixed, bool inside) {
    if (g.mask.dtype == DType::boolean) {
#pragma unroll
      for (int h = 0; h < 2; ++h) words[h] = (mixed ? bits[h][n * kUnits + unit] : 0xffffu) >> 2 * (threadIdx.x % 4);
    } else {
      values.load(g, n * kUnits + unit, mixed, inside);
    }
  }
  __device__ __forceinline__ void apply(float (&scores)[kMmaUnitKeys / 2], const MmaArguments& g) {
    if (g.mask.dtype != DType::boolean) return values.apply(scores, g);
#pragma unroll
    for (int i = 0; i < kMmaUnitKeys / 2; ++i)
      if ((words[i / 2 % 2] >> (i / 4 * 8 + i % 2) & 1) == 0) scores[i] = -INFINITY;
  }
};

}  // namespace xgemm::attention
