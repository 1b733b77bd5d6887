// Masks on scores in registers: wgmma's accumulators (device/ptx/wgmma.cuh) of a warp's 16 rows by a tile of keys.
#pragma once
#include <cmath>

#include "attention/wgmma/scheduler.cuh"
#include "device/numeric.cuh"
#include "device/vector.cuh"

namespace xgemm::attention {

/// The edges: scores of keys outside [begin[h], end[h]) become -inf; h: row l / 4 + 8 h. The tile's first key is `key`.
template <int kKeys>
__device__ __forceinline__ void mask_edges(float (&scores)[kKeys / 2], int key, const int (&begin)[2], const int (&end)[2]) {
  const int mine = key + 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int from = begin[h] - mine;
    const auto count = static_cast<unsigned>(max(end[h] - begin[h], 0));
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c)
        if (static_cast<unsigned>(8 * j + c - from) >= count) scores[4 * j + 2 * h + c] = -INFINITY;
  }
}

/// Soft capping, up to the factor that the scales hold.
template <int kCount>
__device__ __forceinline__ void cap_scores(float (&scores)[kCount], float cap_scale) {
#pragma unroll
  for (float& score : scores) score = tanhf(score * cap_scale);
}

/// The mask of one tile, loaded while the scores are computed, then applied.
template <int kKeys, Masking kMasking>
struct TileMask;

template <int kKeys>
struct TileMask<kKeys, Masking::edges> {
  __device__ __forceinline__ TileMask(const WgmmaArguments&, const RowTile&, const int (&)[2]) {}
  __device__ __forceinline__ void load(const WgmmaArguments&, int, bool, bool) {}
  __device__ __forceinline__ void apply(float (&)[kKeys / 2], float) const {}
};

template <int kKeys>
struct TileMask<kKeys, Masking::boolean> {
  const uint2* bits;  ///< this thread's of the first tile of keys
  uint2 words;

  __device__ __forceinline__ TileMask(const WgmmaArguments& g, const RowTile& tile, const int (&)[2])
      : bits(g.mask.bits + KeyWalk<kKeys, Masking::boolean>::mask_tile(g, tile) * g.mask.key_tiles * (blockDim.x - 128) +
             (threadIdx.x - 128)) {}
  __device__ __forceinline__ void load(const WgmmaArguments&, int n, bool mixed, bool) {
    words = mixed ? __ldg(bits + static_cast<std::int64_t>(n) * (blockDim.x - 128)) : uint2{~0u, ~0u};
  }
  __device__ __forceinline__ void apply(float (&scores)[kKeys / 2], float) const {
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i)
      if (((i / 2 % 2 ? words.y : words.x) >> (i / 4 * 2 + i % 2) & 1) == 0) scores[i] = -INFINITY;
  }
};

template <int kKeys>
struct TileMask<kKeys, Masking::additive> {
  std::int64_t rows[2];     ///< where this thread's rows begin, its first column added
  float values[kKeys / 2];  ///< of the accumulators

  __device__ __forceinline__ TileMask(const WgmmaArguments& g, const RowTile& tile, const int (&packed_rows)[2]) {
    const auto& strides = g.mask.strides;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int position = g.pack.divide(packed_rows[h]);
      const int head = tile.head + packed_rows[h] - position * static_cast<int>(g.pack.divisor);
      rows[h] = tile.outer * strides.outer + tile.inner * strides.inner + head * strides.head +
                min(position, g.sq - 1) * strides.row + 2 * (threadIdx.x % 4) * strides.column;
    }
  }
  /// `inside`: the tile's keys all exist.
  __device__ __forceinline__ void load(const WgmmaArguments& g, int n, bool mixed, bool inside) {
    if (!mixed) {
#pragma unroll
      for (float& value : values) value = 0;
      return;
    }
    const auto load_as = [&](auto type) {
      using M = typename decltype(type)::type;
      const int last =
          g.sk - 1 - n * kKeys - 2 * static_cast<int>(threadIdx.x % 4);  // of the keys that exist, from this thread's
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const M* const row =
            static_cast<const M*>(g.mask.values) + rows[h] + static_cast<std::int64_t>(n) * kKeys * g.mask.strides.column;
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j) {
          if (g.mask.pairs && inside) {
            const auto pair = load_vector<2>(row + 8 * j);
            values[4 * j + 2 * h] = convert<float>(pair[0]), values[4 * j + 2 * h + 1] = convert<float>(pair[1]);
          } else {
#pragma unroll
            for (int c = 0; c < 2; ++c)
              values[4 * j + 2 * h + c] = 8 * j + c <= last ? convert<float>(row[(8 * j + c) * g.mask.strides.column]) : 0.f;
          }
        }
      }
    };
    if (g.mask.dtype == DType::f32)
      load_as(Type<float>{});
    else if (g.mask.dtype == DType::f16)
      load_as(Type<half>{});
    else
      load_as(Type<bf16>{});
  }
  /// Scores in natural units: a mask of the lowest finite number, which models use, would overflow in units of log2.
  __device__ __forceinline__ void apply(float (&scores)[kKeys / 2], float scale) const {
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) scores[i] = fmaf(scores[i], scale, values[i]);
  }
};

}  // namespace xgemm::attention
