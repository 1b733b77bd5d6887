// The online softmax of fp32 attention, as attention/wgmma/softmax.cuh with these differences. The exponent is (score -
// maximum) * scale, so that large scores cost no accuracy. Each row has its own scale. Weights are multiplied by 2^15, so that
// two fp16 parts have 22 bits of every weight down to 2^-17, one part 11 bits down to 2^-29.
#pragma once
#include <cmath>

#include "attention/fp16_split/arguments.h"
#include "attention/wgmma/scheduler.cuh"
#include "attention/wgmma/softmax.cuh"

namespace xgemm::attention {

inline constexpr float kWeightScale = 0x1p15f, kWeightExponent = 15;

/// Corrects the tensor core's average truncation of a sum (matmul/wgmma/kernel.cuh).
inline constexpr float kTruncation = 1.f + 0x1p-23f;

/// The inverse of the power of two that scales a packed row's queries.
__device__ __forceinline__ float query_scale(const SplitArguments& g, const RowTile& tile, int row) {
  const int pack = static_cast<int>(g.pack.divisor), group = pack * static_cast<int>(g.tile_heads.divisor);
  const int batch = tile.inner * g.query_steps.inner + tile.outer * g.query_steps.outer;
  const int position = position_of(g, row), head = tile.head + row - g.pack.divide(row) * pack;
  return __ldcg(g.query_scales + (static_cast<std::int64_t>(batch) * g.sq + position) * group + head);
}

/// The factor for sums relative to the maximum `before`. An infinite maximum is not subtracted (attention/wgmma/softmax.cuh).
__device__ __forceinline__ float rescale_factor(float before, float maximum, float scale) {
  return isinf(maximum) ? 1.f : exp2_approx((before - maximum) * scale);
}

template <int kKeys, int kParts>
struct RowSoftmax {
  float maximum[2] = {-INFINITY, -INFINITY};  ///< of the scores before `scale`
  float sum[2] = {0, 0};                      ///< times kWeightScale, of this lane's keys, until finish()
  float factor[2];                            ///< for sums relative to the previous maximum

  /// Includes `scores` in the running maximum.
  __device__ __forceinline__ void raise_maximum(const float (&scores)[kKeys / 2], const float (&scale)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float before = maximum[h];
      maximum[h] = fmaxf(before, row_maximum(scores, h));
      factor[h] = rescale_factor(before, maximum[h], scale[h]);
    }
  }

  /// Turns scores into weights, and adds these to the sum.
  __device__ __forceinline__ void exponentiate(float (&scores)[kKeys / 2], const float (&scale)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float base = isinf(maximum[h]) ? 0.f : maximum[h];
      float sums[2] = {0, 0};
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& score = scores[4 * j + 2 * h + c];
          if constexpr (kParts == 2)
            score = exp2_approx((score - base) * scale[h]) * kWeightScale;
          else  // 2^15 by the multiply-add: 2^-20 of a weight
            score = exp2_approx(fmaf(score - base, scale[h], kWeightExponent));
          sums[c] += score;
        }
      sum[h] = fmaf(sum[h], factor[h], sums[0] + sums[1]);
    }
  }

  /// After the last tile: completes the row's sum, in all four lanes.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int h = 0; h < 2; ++h) sum[h] = warp_reduce<4>(sum[h], [](float a, float b) { return a + b; });
  }
};

/// Splits two numbers into pairs of fp16: high, and the rest.
__device__ __forceinline__ void split_pair(float first, float second, std::uint32_t& high, std::uint32_t& low) {
  const __half2 pair = __floats2half2_rn(first, second);
  const float2 back = __half22float2(pair);
  high = reinterpret_cast<const std::uint32_t&>(pair);
  low = pack_pair<half>(first - back.x, second - back.y);
}

/// Loads two neighbours of an array of bf16.
__device__ __forceinline__ float2 load_scales(const std::uint16_t* at) {
  const std::uint32_t pair = *reinterpret_cast<const std::uint32_t*>(at);
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

}  // namespace xgemm::attention
