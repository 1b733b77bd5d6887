// The online softmax of a warpgroup's 64 rows in registers (Milakov and Gimelshein 2018; FlashAttention-2, Dao 2023).
//
// A thread holds two rows, h = 0 and 1, of wgmma's accumulators; four neighbouring lanes share them. Scores stay unscaled;
// weights are 2^(score * scale_log2 - base), base = maximum * scale_log2 rounded once, so that an unchanged maximum rescales by
// exactly 1. (Additive masks: Exponentials<Masking::additive>.) A tile without a visible key leaves a row's state unchanged:
// maximum -inf, sum 0, outputs 0.
#pragma once
#include <cmath>
#include <cstdint>

#include "attention/wgmma/tile.h"
#include "device/numeric.cuh"
#include "device/warp.cuh"

namespace xgemm::attention {

/// In units of log2, rounded once: an unchanged maximum then rescales by exactly 1.
__device__ __forceinline__ float log2_units(float score, float scale_log2) { return __fmul_rn(score, scale_log2); }

/// Sums are rescaled only when a score exceeds their maximum by this much (in units of log2); most steps do not rescale outputs.
/// (Lazy rescaling: FlashAttention-4.) A row's largest weight is rounded unless it is 1, which shows where it is nearly the only
/// one: at 8, which half could hold, the Frobenius error of peaked scores is 1.22 times that at 0, at 2 1.06.
constexpr float kOutgrown = 2;

/// Exponentials of scores relative to a row's maximum. An infinite maximum is not subtracted: without a key everything is 0,
/// and a score of +inf makes the row NaN and its log-sum-exp +inf, as softmax does.
template <Masking kMasking>
struct Exponentials {
  float maximum, base;
  __device__ __forceinline__ Exponentials(float m, float scale_log2)
      : maximum(m), base(isinf(m) ? 0.f : log2_units(m, scale_log2)) {}
  /// The weight of an unscaled score: one multiply-add, in units of log2.
  __device__ __forceinline__ float weight(float score, float scale_log2) const {
    return exp2_approx(fmaf(score, scale_log2, -base));
  }
  /// By how much a score exceeds the maximum, in units of log2.
  static __device__ __forceinline__ float excess(float maximum, float score, float scale_log2) {
    return (score - maximum) * scale_log2;
  }
  /// The factor for sums relative to the maximum `before`.
  __device__ __forceinline__ float factor(float before, float scale_log2) const {
    return isinf(maximum) ? 1.f : exp2_approx(log2_units(before, scale_log2) - base);
  }
};
template <>
struct Exponentials<Masking::additive> {
  float maximum, base;
  __device__ __forceinline__ Exponentials(float m, float) : maximum(m), base(isinf(m) ? 0.f : m) {}
  /// Scores are scaled, in natural units: the lowest finite number, which models add to masked scores, would overflow in units
  /// of log2.
  __device__ __forceinline__ float weight(float score, float) const { return exp_of(score - base); }
  static __device__ __forceinline__ float excess(float maximum, float score, float) { return (score - maximum) * kLog2E; }
  __device__ __forceinline__ float factor(float before, float) const { return isinf(maximum) ? 1.f : exp_of(before - base); }
};
template <>
struct Exponentials<Masking::additive_tma> : Exponentials<Masking::additive> {
  using Exponentials<Masking::additive>::Exponentials;
};

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

template <int kKeys, Masking kMasking>
struct OnlineSoftmax {
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};  ///< of this lane's keys, until finish()
  float factor[2];        ///< for sums relative to the previous maximum

  /// Raises the maximum that weights are relative to if `scores` outgrow it, and sets the factor that follows. fmaxf drops NaN,
  /// which comes back through the sum.
  __device__ __forceinline__ void raise_maximum(const float (&scores)[kKeys / 2], float scale_log2) {
    const float largest[2] = {row_maximum(scores, 0), row_maximum(scores, 1)};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float before = maximum[h];
      // No || : a branch would keep the two rows' exchanges apart, and costs more than the comparison.
      const bool grows = static_cast<int>(!(before > -INFINITY)) |
                         static_cast<int>(Exponentials<kMasking>::excess(before, largest[h], scale_log2) > kOutgrown);
      maximum[h] = grows ? fmaxf(before, largest[h]) : before;
      factor[h] = Exponentials<kMasking>(maximum[h], scale_log2).factor(before, scale_log2);
    }
  }

  /// Turns scores into weights, and adds these to the sum.
  __device__ __forceinline__ void exponentiate(float (&scores)[kKeys / 2], float scale_log2) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Exponentials<kMasking> exponentials(maximum[h], scale_log2);
      float sums[2] = {0, 0};  // two chains
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& score = scores[4 * j + 2 * h + c];
          score = exponentials.weight(score, scale_log2);
          sums[c] += score;
        }
      sum[h] = fmaf(sum[h], factor[h], sums[0] + sums[1]);
    }
  }

  template <int kCount>
  __device__ __forceinline__ void rescale(float (&outputs)[kCount]) const {
    if (__all_sync(kFullWarp, factor[0] == 1.f && factor[1] == 1.f)) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) outputs[i] *= factor[i / 2 % 2];
  }

  /// After the last tile: completes the row's sum, in all four lanes.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int h = 0; h < 2; ++h) sum[h] = warp_reduce<4>(sum[h], [](float a, float b) { return a + b; });
  }
};

/// Two numbers as T in one register, the first in the lower half.
template <class T>
__device__ __forceinline__ std::uint32_t pack_pair(float first, float second) {
  if constexpr (std::is_same_v<T, half>) {
    const __half2 pair = __floats2half2_rn(first, second);
    return reinterpret_cast<const std::uint32_t&>(pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return reinterpret_cast<const std::uint32_t&>(pair);
  }
}

/// 16 columns of accumulators, from column 16 k on, as the A fragment of one wgmma (device/ptx/wgmma.cuh): the same thread holds
/// them in both layouts.
template <class T, int kCount>
__device__ __forceinline__ void to_fragment(std::uint32_t (&fragment)[4], const float (&accumulators)[kCount], int k) {
#pragma unroll
  for (int i = 0; i < 4; ++i) fragment[i] = pack_pair<T>(accumulators[8 * k + 2 * i], accumulators[8 * k + 2 * i + 1]);
}

}  // namespace xgemm::attention
