// Masks of scores in registers: wgmma's accumulators (device/ptx/wgmma.cuh) of a warp's 16 rows by a tile of keys.
#pragma once
#include "attention/tiles/scheduler.cuh"
#include "attention/tiles/softmax.cuh"
#include "device/vector.cuh"

namespace xgemm::attention {

/// The keys [begin[h], end[h]) that a thread's packed rows see, `row` and the one 8 further.
struct RowLimits {
  int begin[2], end[2];
  RowLimits() = default;
  template <class Bounds>
  __device__ __forceinline__ RowLimits(const TileArguments& g, const Bounds& bounds, int row) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int position = position_of(g, bounds, row + 8 * h);
      begin[h] = keys_begin(bounds, position), end[h] = keys_end(bounds, position);
    }
  }
};

/// The edges: sets scores of keys outside a row's limits to -inf; h: row l / 4 + 8 h. The tile's first key is `key`.
template <int kKeys>
__device__ __forceinline__ void mask_edges(float (&scores)[kKeys / 2], int key, const RowLimits& limits) {
  const int mine = key + 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int from = limits.begin[h] - mine;
    const auto count = static_cast<unsigned>(max(limits.end[h] - limits.begin[h], 0));
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c)
        if (static_cast<unsigned>(8 * j + c - from) >= count) scores[4 * j + 2 * h + c] = -INFINITY;
  }
}

/// Soft capping without the factor that the scales include: tanh x = 1 - 2 / (1 + e^(2 x)), whose absolute error is that of
/// fp32.
template <int kCount>
__device__ __forceinline__ void cap_scores(float (&scores)[kCount], float cap_scale) {
#pragma unroll
  for (float& score : scores) score = fmaf(-2.f, __fdividef(1.f, 1.f + exp2_approx(score * (2 * kLog2E * cap_scale))), 1.f);
}

/// The mask of one tile of `rows` rows, loaded while other tiles are computed, then applied; packed_rows: this thread's rows, h =
/// 0 and 1. kAhead: are there registers for an additive one? Here there is none, or TMA loads it (wgmma/mask_slot.cuh).
template <int kKeys, Masking kMasking, bool kAhead = true>
struct TileMask {
  __device__ __forceinline__ TileMask(const TileArguments&, const RowTile&, const int (&)[2], int) {}
  __device__ __forceinline__ void load(const TileArguments&, int, bool, bool) {}
  __device__ __forceinline__ void apply(float (&)[kKeys / 2], const TileArguments&) const {}
};

template <int kKeys, bool kAhead>
struct TileMask<kKeys, Masking::boolean, kAhead> {
  const uint2* bits;  ///< this thread's bits of the first tile of keys
  int step;           ///< to those of the next
  uint2 words;
  bool changes = false;

  __device__ __forceinline__ TileMask(const TileArguments& g, const RowTile& tile, const int (&packed_rows)[2], int rows)
      : bits(g.mask.bits + KeyWalk<kKeys, Masking::boolean>::mask_tile(g, tile) * g.mask.key_tiles * (2 * rows) +
             (packed_rows[0] - tile.row) / 16 * 32 + threadIdx.x % 32),
        step(2 * rows) {
    asm volatile("" : "+l"(bits));  // else each step computes it again, in front of the load that products have to hide
  }
  __device__ __forceinline__ void load(const TileArguments&, int n, bool mixed, bool) {
    const uint2* const at = bits + static_cast<std::int64_t>(n) * step;
    changes = mixed;
    if (mixed) words = __ldg(at);
  }
  __device__ __forceinline__ void apply(float (&scores)[kKeys / 2], const TileArguments&) const {
    if (!changes) return;
#pragma unroll
    for (int h = 0; h < 2; ++h)  // word by word: ptxas then moves seven bits at a time to predicates
#pragma unroll
      for (int bit = 0; bit < kKeys / 4; ++bit)
        if (((h == 0 ? words.x : words.y) & 1u << bit) == 0) scores[bit / 2 * 4 + 2 * h + bit % 2] = -INFINITY;
  }
};

/// Offsets of this thread's two rows in the mask, with its first column added.
__device__ __forceinline__ void find_mask_rows(std::int64_t (&rows)[2], const TileArguments& g, const RowTile& tile,
                                               const int (&packed_rows)[2]) {
  const auto& strides = g.mask.strides;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int position = g.pack.divide(packed_rows[h]);
    const int head = tile.head + packed_rows[h] - position * static_cast<int>(g.pack.divisor);
    rows[h] = tile.outer * strides.outer + tile.inner * strides.inner + head * strides.head +
              min(position, g.sq - 1) * strides.row + 2 * (threadIdx.x % 4) * strides.column;
  }
}

template <int kKeys, bool kAhead>
struct TileMask<kKeys, Masking::additive, kAhead> {
  std::int64_t rows[2];                            ///< offsets of this thread's rows, with its first column added
  std::uint32_t pairs[kAhead ? 2 : 1][kKeys / 8];  ///< half types: two columns per word; one row at a time without kAhead
  int key;                                         ///< the tile's first
  bool changes, in_pairs;

  __device__ __forceinline__ TileMask(const TileArguments& g, const RowTile& tile, const int (&packed_rows)[2], int) {
    find_mask_rows(rows, g, tile, packed_rows);
  }
  /// `inside`: all keys of the tile are in bounds.
  __device__ __forceinline__ void load(const TileArguments& g, int n, bool mixed, bool inside) {
    key = n * kKeys, changes = mixed, in_pairs = mixed && inside && g.mask.pairs && g.mask.dtype != DType::f32;
    if (kAhead && in_pairs) load_row<0>(g), load_row<1>(g);
  }
  template <int h>
  __device__ __forceinline__ void load_row(const TileArguments& g) {
    const auto* const row = static_cast<const std::uint16_t*>(g.mask.values) + rows[h] + key;
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) pairs[kAhead ? h : 0][j] = __ldg(reinterpret_cast<const std::uint32_t*>(row + 8 * j));
  }
  template <int h>
  __device__ __forceinline__ void add_row(float (&scores)[kKeys / 2], const TileArguments& g) {
    if constexpr (!kAhead) load_row<h>(g);
    const bool fp16 = g.mask.dtype == DType::f16;
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
      const std::uint32_t word = pairs[kAhead ? h : 0][j];
      const float2 pair = fp16 ? unpack_pair<half>(word) : unpack_pair<bf16>(word);
      float* const score = scores + 4 * j + 2 * h;
      score[0] = fmaf(score[0], g.score_scale, pair.x), score[1] = fmaf(score[1], g.score_scale, pair.y);
    }
  }
  /// Scores are in natural units: a mask of the lowest finite number, as models use it, would overflow in units of log2.
  __device__ __forceinline__ void apply(float (&scores)[kKeys / 2], const TileArguments& g) {
    if (!changes) {
#pragma unroll
      for (float& score : scores) score *= g.score_scale;
    } else if (in_pairs) {
      add_row<0>(scores, g), add_row<1>(scores, g);
    } else {
      apply_general(scores, g);
    }
  }
  /// One element at a time: fp32, other strides, the last keys.
  __device__ __forceinline__ void apply_general(float (&scores)[kKeys / 2], const TileArguments& g) const {
    const int last = g.sk - 1 - key - 2 * static_cast<int>(threadIdx.x % 4);  // last key in bounds, from this thread's first
    const int shift = g.mask.dtype == DType::f32 ? 2 : 1;
    const std::int64_t step = g.mask.strides.column << shift;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const char* at = static_cast<const char*>(g.mask.values) + ((rows[h] + key * g.mask.strides.column) << shift);
#pragma unroll
      for (int i = 0; i < kKeys / 4; ++i) {
        const int column = i / 2 * 8 + i % 2;
        float value = 0;
        if (column <= last) {
          if (g.mask.dtype == DType::f32) {
            value = *reinterpret_cast<const float*>(at);
          } else {
            const auto bits = *reinterpret_cast<const std::uint16_t*>(at);
            value = g.mask.dtype == DType::f16 ? half_of<half>(bits, 0) : half_of<bf16>(bits, 0);
          }
        }
        at += i % 2 == 0 ? step : 7 * step;
        float& score = scores[i / 2 * 4 + 2 * h + i % 2];
        score = fmaf(score, g.score_scale, value);
      }
    }
  }
};

/// fp16_split/: an additive mask of fp32.
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

}  // namespace xgemm::attention
