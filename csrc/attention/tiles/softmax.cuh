// The online softmax of 16 rows of each warp in the accumulators of wgmma and mma.sync (Milakov and Gimelshein 2018;
// FlashAttention-2, Dao 2023).
//
// A thread holds two rows, h = 0 and 1; four neighbouring lanes share them. A weight is 2^((score - maximum) * scale), `scale`
// with log2(e) in it: the maximum's is 1 and no weight is larger, whatever the scores' magnitude. A tile without a visible key
// leaves a row's state unchanged: maximum -inf, sum 0, outputs 0.
#pragma once
#include "attention/tiles/tile.h"
#include "device/numeric.cuh"
#include "device/warp.cuh"

namespace xgemm::attention {

/// What is subtracted from the scores of a row with this maximum. Not an infinite one: without a key every weight is 0, and a
/// score of +inf makes the row NaN and its log-sum-exp +inf, as softmax does.
__device__ __forceinline__ float softmax_base(float maximum) { return isinf(maximum) ? 0.f : maximum; }

/// The factor of sums relative to the maximum `before` in a row with the maximum `maximum`.
__device__ __forceinline__ float rescale_factor(float before, float maximum, float scale) {
  return isinf(maximum) ? 1.f : exp2_approx((before - maximum) * scale);
}

/// Natural log-sum-exp of a row's scaled scores.
__device__ __forceinline__ float log_sum(float maximum, float sum, float scale) {
  if (sum == 0.f) return -INFINITY;
  return (isinf(maximum) ? 0.f : maximum * scale) + logf(sum);
}

/// The largest score of row h in this tile, in all four lanes that share it.
template <int kCount>
__device__ __forceinline__ float row_maximum(const float (&scores)[kCount], int h) {
  float largest = fmaxf(scores[2 * h], scores[2 * h + 1]);
#pragma unroll
  for (int j = 1; j < kCount / 4; ++j) largest = fmaxf(largest, fmaxf(scores[4 * j + 2 * h], scores[4 * j + 2 * h + 1]));
  return warp_reduce<4>(largest, [](float a, float b) { return fmaxf(a, b); });
}

/// The largest |maximum * scale| whose rounding, 2^-16, does not show in a weight of 16 bits.
inline constexpr float kNearBase = 256;

template <int kKeys>
struct OnlineSoftmax {
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};  ///< of this lane's keys, until finish()
  float factor[2];        ///< for sums relative to the previous maximum

  /// Includes `scores` in the maximum. fmaxf drops NaN, which comes back through the sum.
  __device__ __forceinline__ void raise_maximum(const float (&scores)[kKeys / 2], const float (&scale)[2]) {
    const float largest[2] = {row_maximum(scores, 0), row_maximum(scores, 1)};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float before = maximum[h];
      maximum[h] = fmaxf(before, largest[h]);
      factor[h] = rescale_factor(before, maximum[h], scale[h]);
    }
  }

  /// The same of row h alone, by one chain, which ptxas begins when `after` is known.
  __device__ __forceinline__ void raise_row(const float (&scores)[kKeys / 2], int h, float scale, float after) {
    const float before = maximum[h];
    float largest;  // -inf
    asm("min.f32 %0, %1, 0fFF800000;" : "=f"(largest) : "f"(after));
    largest = fmaxf(before, largest);
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) largest = fmaxf(fmaxf(largest, scores[4 * j + 2 * h]), scores[4 * j + 2 * h + 1]);
    maximum[h] = warp_reduce<4>(largest, [](float a, float b) { return fmaxf(a, b); });
    factor[h] = rescale_factor(before, maximum[h], scale);
  }

  /// Turns scores into weights, weight(score, h), and adds these to the sum.
  template <class Weight>
  __device__ __forceinline__ void exponentiate(float (&scores)[kKeys / 2], const Weight& weight) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sums[2] = {0, 0};  // two chains
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& score = scores[4 * j + 2 * h + c];
          score = weight(score, h);
          sums[c] += score;
        }
      sum[h] = fmaf(sum[h], factor[h], sums[0] + sums[1]);
    }
  }

  /// The same with weights of one multiply-add, score * scale - base. The base, maximum * scale, is rounded up, which takes the
  /// same factor of at most 2^-16 off all of a row's weights. Where it would take more off (thousands, in the exponent, once
  /// scores reach 1e11), the maximum is subtracted from the scores first.
  __device__ __forceinline__ void exponentiate_half(float (&scores)[kKeys / 2], float scale) {
    float base[2], offset[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float zero = softmax_base(maximum[h]);
      base[h] = __fmul_ru(zero, scale);
      offset[h] = fabsf(base[h]) > kNearBase ? zero : 0.f;
    }
    if (__any_sync(kFullWarp, offset[0] != 0.f || offset[1] != 0.f)) {
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) scores[i] -= offset[i / 2 % 2];  // by 0 in a row beside it, whose bits do not change
#pragma unroll
      for (int h = 0; h < 2; ++h) base[h] = offset[h] != 0.f ? 0.f : base[h];
    }
    exponentiate(scores, [&](float score, int h) { return exp2_approx(fmaf(score, scale, -base[h])); });
  }

  /// A vote for each row h: late in a long row few maxima change.
  template <int kCount>
  __device__ __forceinline__ void rescale(float (&outputs)[kCount]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (__all_sync(kFullWarp, factor[h] == 1.f)) continue;
#pragma unroll
      for (int i = 0; i < kCount; i += 4) outputs[i + 2 * h] *= factor[h], outputs[i + 2 * h + 1] *= factor[h];
    }
  }

  /// After the last tile: completes the row's sum, in all four lanes.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int h = 0; h < 2; ++h) sum[h] = warp_reduce<4>(sum[h], [](float a, float b) { return a + b; });
  }
};

/// pack_pair()'s numbers.
template <class T>
__device__ __forceinline__ float2 unpack_pair(std::uint32_t pair) {
  return {half_of<T>(pair, 0), half_of<T>(pair, 1)};
}

/// 16 columns of accumulators, from column 16 k on, as the A fragment of one wgmma (device/ptx/wgmma.cuh): the same thread holds
/// them in both layouts.
template <class T, int kCount>
__device__ __forceinline__ void to_fragment(std::uint32_t (&fragment)[4], const float (&accumulators)[kCount], int k) {
#pragma unroll
  for (int i = 0; i < 4; ++i) fragment[i] = pack_pair<T>(accumulators[8 * k + 2 * i], accumulators[8 * k + 2 * i + 1]);
}

}  // namespace xgemm::attention
