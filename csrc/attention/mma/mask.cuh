// Masks on a warp's 16 rows by 16 keys: boolean bits or additive values, in natural units (wgmma/mask.cuh).
#pragma once
#include "attention/mma/tile.h"
#include "attention/wgmma/mask.cuh"

namespace xgemm::attention {

template <int kUnits, Masking kMasking>
struct UnitMask {
  TileMask<kMmaUnitKeys, Masking::additive> values;
  std::int64_t first_tile;  ///< boolean mask: index of this tile of rows among all tiles of rows by keys
  int lane;                 ///< this thread's among the classifier's, which has one for each lane of four warps of 16 rows
  uint2 words;

  __device__ __forceinline__ UnitMask(const WgmmaArguments& g, const RowTile& tile, const int (&rows)[2])
      : values(g, tile, rows),
        first_tile(KeyWalk<1, kMasking>::mask_tile(g, tile) * g.mask.key_tiles),
        lane((rows[0] - tile.row) / kMmaRows * 32 + static_cast<int>(threadIdx.x) % 32) {}
  /// Loads unit `unit` of tile `n`. `inside`: all keys of the tile are in bounds.
  __device__ __forceinline__ void load(const WgmmaArguments& g, int n, int unit, bool mixed, bool inside) {
    if (g.mask.dtype == DType::boolean) {
      words = mixed ? __ldg(g.mask.bits + (first_tile + n) * kMmaThreads + lane) : uint2{~0u, ~0u};
      words.x >>= 4 * unit, words.y >>= 4 * unit;
    } else {
      values.load(g, n * kUnits + unit, mixed, inside);
    }
  }
  __device__ __forceinline__ void apply(float (&scores)[kMmaUnitKeys / 2], const WgmmaArguments& g) {
    if (g.mask.dtype != DType::boolean) return values.apply(scores, g);
#pragma unroll
    for (int i = 0; i < kMmaUnitKeys / 2; ++i) {
      const bool seen = (i / 2 % 2 ? words.y : words.x) >> (i / 4 * 2 + i % 2) & 1;
      scores[i] = seen ? scores[i] * g.score_scale : -INFINITY;
    }
  }
};

template <int kUnits>
struct UnitMask<kUnits, Masking::edges> {
  __device__ __forceinline__ UnitMask(const WgmmaArguments&, const RowTile&, const int (&)[2]) {}
  __device__ __forceinline__ void load(const WgmmaArguments&, int, int, bool, bool) {}
  __device__ __forceinline__ void apply(float (&)[kMmaUnitKeys / 2], const WgmmaArguments&) const {}
};

}  // namespace xgemm::attention
