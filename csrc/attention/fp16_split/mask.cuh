// An additive fp32 mask on scores in registers (boolean masks and edges: attention/tiles/mask.cuh).
#pragma once
#include "attention/tiles/mask.cuh"

namespace xgemm::attention {

template <int kKeys>
struct AdditiveMask {
  std::int64_t rows[2];     ///< offsets of this thread's rows, with its first column added
  float values[kKeys / 2];  ///< of the accumulators

  __device__ __forceinline__ AdditiveMask(const TileArguments& g, const RowTile& tile, const int (&packed_rows)[2], int) {
    find_mask_rows(rows, g, tile, packed_rows);
  }
  /// Loads the mask of keys from n kKeys on. `inside`: all of them are in bounds.
  __device__ __forceinline__ void load(const TileArguments& g, int n, bool mixed, bool inside) {
    const int last =
        g.sk - 1 - n * kKeys - 2 * static_cast<int>(threadIdx.x % 4);  // last key in bounds, from this thread's first
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float* const row =
          static_cast<const float*>(g.mask.values) + rows[h] + static_cast<std::int64_t>(n) * kKeys * g.mask.strides.column;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
        Vector<float, 2> pair = {};
        if (mixed && g.mask.pairs && inside) {
          pair = load_vector<2>(row + 8 * j);
        } else if (mixed) {
#pragma unroll
          for (int c = 0; c < 2; ++c)
            if (8 * j + c <= last) pair[c] = row[(8 * j + c) * g.mask.strides.column];
        }
        values[4 * j + 2 * h] = pair[0], values[4 * j + 2 * h + 1] = pair[1];
      }
    }
  }
};

template <int kKeys, Masking kMasking>
struct SplitMask : TileMask<kKeys, kMasking> {
  using TileMask<kKeys, kMasking>::TileMask;
};
template <int kKeys>
struct SplitMask<kKeys, Masking::additive> : AdditiveMask<kKeys> {
  using AdditiveMask<kKeys>::AdditiveMask;
};

}  // namespace xgemm::attention
