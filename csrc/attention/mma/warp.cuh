// One warp's 16 rows against its share of the keys: scores, weights and outputs in registers, mma.sync m16n8k16 throughout.
#pragma once
#include "attention/mma/copies.cuh"
#include "attention/wgmma/softmax.cuh"
#include "device/ptx/mma.cuh"

namespace xgemm::attention {

/// Weights as two bf16 parts that add up to 15 bits, A fragments each. Both are positive if the weight is: an infinite value
/// times either is the same infinity.
__device__ __forceinline__ void split_weights(std::uint32_t (&high)[4], std::uint32_t (&low)[4],
                                              const float (&weights)[kMmaUnitKeys / 2]) {
  float rest[kMmaUnitKeys / 2];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    std::uint32_t below[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      below[c] = __float_as_uint(weights[2 * i + c] * (1 - 0x1p-8f)) & 0xffff0000;
      rest[2 * i + c] = weights[2 * i + c] - __uint_as_float(below[c]);
    }
    high[i] = below[1] | below[0] >> 16;
  }
  to_fragment<__nv_bfloat16>(low, rest, 0);
}

template <class Element, int kIndex, Masking kMasking>
struct WarpRows {
  static constexpr WgmmaTile kTile = kMmaTiles[kIndex];
  static constexpr int kSteps = kTile.head_size / 16, kUnits = kTile.keys / kMmaUnitKeys;
  static constexpr bool kHoldsQueries = mma_query_bytes(kTile) == 0;
  /// bf16 weights have 8 bits: in two parts only the output is rounded. The products are free where memory is the limit. Not for
  /// half, whose second part would be 0 for weights below 2^-14.
  static constexpr bool kTwoParts = std::is_same_v<Element, __nv_bfloat16>;

  const MmaArguments& g;
  int slice;             ///< takes the units whose index among all keys is `slice` modulo kMmaWarps
  int begin[2], end[2];  ///< keys that this thread's rows see
  std::uint32_t queries[kHoldsQueries ? kSteps : 1][4];  ///< A fragments
  uint4* shared_queries;                                 ///< or this lane's in shared memory, 32 apart
  float outputs[kTile.value_size / 2];
  OnlineSoftmax<kMmaUnitKeys, kMasking> softmax;
  const TileReader<kTile.head_size, false> key_reader;
  const TileReader<kTile.value_size, true> value_reader;

  __device__ __forceinline__ explicit WarpRows(const MmaArguments& arguments) : g(arguments) {
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

  /// Loads queries, zeros out of bounds. `memory`: mma_query_bytes() of shared memory; a CTA barrier follows.
  __device__ __forceinline__ void load_queries(const RowTile& tile, unsigned char* memory) {
    const MmaArguments::Operand& x = g.queries;
    const std::uint16_t* from[2];
    int columns[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int packed = tile.row + row(h), position = position_of(g, packed);
      const int head = tile.head + packed - g.pack.divide(packed) * static_cast<int>(g.pack.divisor);
      begin[h] = keys_begin(g, position), end[h] = keys_end(g, position);
      from[h] = static_cast<const std::uint16_t*>(x.data) + tile.outer * x.outer + tile.inner * x.inner + head * x.head +
                position * x.row + 2 * (static_cast<int>(threadIdx.x) % 4);
      columns[h] = g.pack.divide(packed) < g.sq ? g.d : 0;
    }
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

  __device__ __forceinline__ void multiply_values(const float (&weights)[kMmaUnitKeys / 2], const unsigned char* values) {
    std::uint32_t high[4], low[4];
    if constexpr (kTwoParts)
      split_weights(high, low, weights);
    else
      to_fragment<Element>(high, weights, 0);
#pragma unroll
    for (int pair = 0; pair < kTile.value_size / 16; ++pair) {
      std::uint32_t fragment[4];
      ptx::ldmatrix_transposed(fragment, values + value_reader.at(pair));
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float(&output)[4] = reinterpret_cast<float(&)[4]>(outputs[8 * pair + 4 * j]);
        if constexpr (kTwoParts) ptx::mma<Element>(output, low, fragment[2 * j], fragment[2 * j + 1]);
        ptx::mma<Element>(output, high, fragment[2 * j], fragment[2 * j + 1]);
      }
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
      if (edge) mask_edges<kMmaUnitKeys>(scores, walk.n * kTile.keys + unit * kMmaUnitKeys, begin, end);
      softmax.raise_maximum(scores, g.scale_log2);
      softmax.exponentiate(scores, g.scale_log2);
      softmax.rescale(outputs);
      multiply_values(scores, values + unit * (2 * kMmaUnitKeys * kTile.value_size));
    }
  }
};

}  // namespace xgemm::attention
