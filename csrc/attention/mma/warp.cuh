// One warp's 16 rows against its share of the keys: scores, weights and outputs in registers, mma.sync m16n8k16 throughout.
#pragma once
#include "attention/mma/copies.cuh"
#include "attention/tiles/softmax.cuh"
#include "device/ptx/mma.cuh"

namespace xgemm::attention {

/// The A fragment of weights of rows 0 to 7: their bf16 parts, the lower ones in rows 8 to 15. The parts add up to 15 bits. Both
/// are positive if the weight is, so that an infinite value times either is the same infinity.
__device__ __forceinline__ void to_two_parts(std::uint32_t (&fragment)[4], const float (&weights)[kMmaUnitKeys / 2]) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    std::uint32_t upper[2];
    float lower[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float weight = weights[2 * i + c];
      upper[c] = __float_as_uint(weight * (1 - 0x1p-8f)) & 0xffff0000;
      lower[c] = weight - __uint_as_float(upper[c]);
    }
    fragment[i] = upper[1] | upper[0] >> 16;
    fragment[i + 1] = pack_pair<bf16>(lower[0], lower[1]);
  }
}

template <class Element, int kIndex, Masking kMasking>
struct WarpRows {
  static constexpr Tile kTile = kMmaTiles[kIndex];
  static constexpr int kSteps = kTile.head_size / 16, kUnits = kTile.keys / kMmaUnitKeys;
  static constexpr bool kHoldsQueries = mma_query_bytes(kTile, has_mask(kMasking)) == 0;
  /// bf16 weights have 8 bits. Up to 8 rows, the other 8 of an mma hold what rounding leaves, and only the output is rounded.
  /// (half: what is left of weights below 2^-14 would be 0, and 0 times an infinite value NaN.)
  static constexpr bool kMaySplit = std::is_same_v<Element, bf16>;

  const ArgumentsOf<MmaArguments, kMasking>& g;
  int slice;         ///< takes the units whose index among all keys is `slice` modulo kMmaWarps
  RowLimits limits;  ///< of this thread's rows
  std::uint32_t queries[kHoldsQueries ? kSteps : 1][4];  ///< A fragments
  uint4* shared_queries;                                 ///< or this lane's in shared memory, 32 apart
  float outputs[kTile.value_size / 2];
  OnlineSoftmax<kMmaUnitKeys> softmax;
  const TileReader<kTile.head_size, false> key_reader;
  const TileReader<kTile.value_size, true> value_reader;

  __device__ __forceinline__ explicit WarpRows(const ArgumentsOf<MmaArguments, kMasking>& arguments) : g(arguments) {
    slice = warp_uniform(static_cast<int>(threadIdx.x) / 32);
    clear();
  }
  /// Before the first key of a split.
  __device__ __forceinline__ void clear() {
    softmax = {};
#pragma unroll
    for (float& output : outputs) output = 0;
  }
  __device__ __forceinline__ int row(int h) const { return static_cast<int>(threadIdx.x) % 32 / 4 + 8 * h; }

  /// Of sequences: each time, as there are no registers for them in the loop.
  __device__ __forceinline__ void find_limits(const TileOf<kMasking>& tile) {
    limits = RowLimits(g, tile.bounds(g), tile.row + row(0));
  }

  /// Loads queries, zeros out of bounds. `memory`: mma_query_bytes() of shared memory; a CTA barrier follows.
  __device__ __forceinline__ void load_queries(const TileOf<kMasking>& tile, unsigned char* memory) {
    const MmaArguments::Operand& x = g.queries;
    const auto& bounds = tile.bounds(g);
    const std::uint16_t* from[2];
    int columns[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int packed = tile.row + row(h), position = position_of(g, bounds, packed);
      const int head = tile.head + packed - g.pack.divide(packed) * static_cast<int>(g.pack.divisor);
      from[h] = static_cast<const std::uint16_t*>(x.data) + tile.offset_in(x) + head * x.head + position * x.row +
                2 * (static_cast<int>(threadIdx.x) % 4);
      columns[h] = g.pack.divide(packed) < bounds.sq ? g.d : 0;
    }
    if constexpr (kMasking != Masking::sequences) find_limits(tile);
    shared_queries = reinterpret_cast<uint4*>(memory) + threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t fragment[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // clamped address: no branch around the load
        const int column = 16 * step + i / 2 * 8, h = i % 2;
        const std::uint32_t pair = __ldg(reinterpret_cast<const std::uint32_t*>(from[h] + (column < g.d ? column : 0)));
        fragment[i] = column < columns[h] ? pair : 0;
      }
      if constexpr (kHoldsQueries) {
#pragma unroll
        for (int i = 0; i < 4; ++i) queries[step][i] = fragment[i];
      } else if (slice == 0) {
        shared_queries[step * 32] = {fragment[0], fragment[1], fragment[2], fragment[3]};
      }
    }
  }

  /// The scores of 16 keys. Two chains of products, of even and odd steps, because a product waits for the previous one of its
  /// chain.
  __device__ __forceinline__ void multiply_keys(float (&scores)[kMmaUnitKeys / 2], const unsigned char* keys) {
    float sums[2][2][4] = {};
#pragma unroll(kHoldsQueries ? kSteps : 4)
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t fragment[4];
      ptx::ldmatrix(fragment, keys + key_reader.at(step));
      std::uint32_t(&query)[4] = queries[kHoldsQueries ? step : 0];
      if constexpr (!kHoldsQueries) {
        const uint4 held = shared_queries[step * 32];
        query[0] = held.x, query[1] = held.y, query[2] = held.z, query[3] = held.w;
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) ptx::mma<Element>(sums[step % 2][j], query, fragment[2 * j], fragment[2 * j + 1]);
    }
#pragma unroll
    for (int i = 0; i < kMmaUnitKeys / 2; ++i) scores[i] = sums[0][i / 4][i % 4] + sums[1][i / 4][i % 4];
  }

  __device__ __forceinline__ bool has_two_parts() const { return kMaySplit && g.partial_rows <= kMmaRows / 2; }

  __device__ __forceinline__ void multiply_values(const float (&weights)[kMmaUnitKeys / 2], const unsigned char* values) {
    std::uint32_t a[4];
    if (has_two_parts())
      to_two_parts(a, weights);
    else
      to_fragment<Element>(a, weights, 0);
#pragma unroll
    for (int pair = 0; pair < kTile.value_size / 16; ++pair) {
      std::uint32_t fragment[4];
      ptx::ldmatrix_transposed(fragment, values + value_reader.at(pair));
#pragma unroll
      for (int j = 0; j < 2; ++j)
        ptx::mma<Element>(reinterpret_cast<float(&)[4]>(outputs[8 * pair + 4 * j]), a, fragment[2 * j], fragment[2 * j + 1]);
    }
  }

  /// Computes the warp's units of the walk's current tile of keys.
  __device__ __forceinline__ void attend(const SplitKeys<kTile.keys, kMasking>& walk, UnitMask<kTile.keys, kMasking>& mask,
                                         const unsigned char* keys, const unsigned char* values) {
    const bool edge = walk.on_edge();
#pragma unroll 1
    for (int unit = (slice - walk.n * kUnits) & (kMmaWarps - 1); unit < kUnits; unit += kMmaWarps) {
      mask.load(g, walk.n, unit, walk.on_mask(), !edge);
      float scores[kMmaUnitKeys / 2];
      multiply_keys(scores, keys + unit * (2 * kMmaUnitKeys * kTile.head_size));
      if (g.cap_scale != 0.f) cap_scores(scores, g.cap_scale);
      mask.apply(scores, g);
      if (edge) {
        if constexpr (kMasking == Masking::sequences) find_limits(held_tile());
        mask_edges<kMmaUnitKeys>(scores, walk.n * kTile.keys + unit * kMmaUnitKeys, limits);
      }
      const float scale[2] = {g.scale_log2, g.scale_log2};
      softmax.raise_maximum(scores, scale);
      if (has_two_parts()) softmax.factor[1] = softmax.factor[0];
      softmax.exponentiate_half(scores, g.scale_log2);
      softmax.rescale(outputs);
      multiply_values(scores, values + unit * (2 * kMmaUnitKeys * kTile.value_size));
    }
  }

  /// After a split's last key: completes sums and outputs.
  __device__ __forceinline__ void finish() {
    softmax.finish();
    if (!has_two_parts()) return;
#pragma unroll
    for (int i = 0; i < kTile.value_size / 2; i += 4)
#pragma unroll
      for (int c = 0; c < 2; ++c) outputs[i + c] += outputs[i + 2 + c];
  }
};

}  // namespace xgemm::attention
