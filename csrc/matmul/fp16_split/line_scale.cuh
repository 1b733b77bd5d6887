// Scales of the lines (rows of A, columns of B) of a split fp32 operand, and how exactly the split represents them: see
// fp16_split/split.cuh.
#pragma once
#include <cstdint>

#include "device/numeric.cuh"

namespace xgemm::matmul {

inline constexpr unsigned kInfinityBits = 0x7f800000u;
inline constexpr float kLowUnit = 0x1p-11f;  ///< a line's second part is stored in this unit, which widens its range

/// A line's statistics, found by the split.
struct alignas(16) LineStats {
  unsigned max_bits;  ///< bits of the largest magnitude; from 0x7f800000 on: Inf or NaN
  unsigned dense, lossy, nonzero;
};

/// Of a magnitude's bits: is it too small for three bf16 parts (under 2^-109), or finite and rounded to infinity by the first?
__device__ __forceinline__ bool is_extreme(unsigned bits) {
  constexpr unsigned kSmall = 18u << 23, kLarge = 0x7f7f8000u;
  return bits - 1 < kSmall - 1 || bits - kLarge < kInfinityBits - kLarge;
}

/// Power of two that scales a line: its maximum lands in [2^14, 2^15). Between -113 and 163.
__device__ __forceinline__ int split_exponent(unsigned max_bits) {
  if (max_bits == 0 || max_bits >= kInfinityBits) return 0;
  const int floor_log2 =
      max_bits >= 0x00800000u ? static_cast<int>(max_bits >> 23) - 127 : -118 - __clz(static_cast<int>(max_bits));
  return 14 - floor_log2;
}

/// 2^e as a float, for e in [-126, 127].
__device__ __forceinline__ float power_of_two(int e) { return __int_as_float((e + 127) << 23); }

/// x 2^exponent, to undo a scale. Two factors, as 2^exponent may be out of range. Only the last product can be denormal, so
/// there is one rounding.
__device__ __forceinline__ float unscale(float x, int exponent) {
  const int e = max(exponent, -252), half_e = e / 2;
  return x * power_of_two(half_e) * power_of_two(e - half_e);
}

/// Power of two that raises a line whose largest magnitude is below 2^-8 to about [1, 2), so that three bf16 parts represent
/// all numbers within 2^-100 of it. Lines are only raised, which rounds nothing.
__device__ __forceinline__ int lift_exponent(unsigned max_bits) {
  constexpr int kLow = 127 - 8;
  const int biased = static_cast<int>(max_bits >> 23);
  return max_bits == 0 || biased >= kLow ? 0 : min(127 - biased, 126);
}

/// Quality of a line's split, for pairs_well(); both in 1/256 of K.
struct LineQuality {
  int density;  ///< dense elements; above that for zeros, far below for Inf and NaN
  int filled;   ///< 1 + elements that are not zero, fewer for a short K; 0 if the line has a lossy element
};
__device__ __forceinline__ LineQuality line_quality(const LineStats& s, std::int64_t k) {
  constexpr float kLong = 512;  // below, kEnoughFilled asks for a sum of 16 products, not for 1/32 of K
  if (s.max_bits >= kInfinityBits) return {-4096, 0};
  if (s.max_bits == 0) return {512, 1 << 14};
  const float length = static_cast<float>(k), scale = __fdividef(256.f, length);
  const auto share = [&](unsigned count, float of) { return static_cast<int>(static_cast<float>(count) * of); };
  const bool few = static_cast<std::int64_t>(s.lossy) * 256 <= k;
  return {few ? share(s.dense, scale) : 0, s.lossy == 0 ? 1 + share(s.nonzero, scale * fminf(1, sqrtf(length / kLong))) : 0};
}
inline constexpr int kEnoughDense = 256 + 32, kEnoughFilled = 256 * 256 / 32;
__device__ __forceinline__ bool pairs_well(LineQuality a, LineQuality b) {
  return a.filled * b.filled >= kEnoughFilled || a.density + b.density >= kEnoughDense;
}

/// Does the line pair well with lines of zeros only?
__device__ __forceinline__ bool pairs_with_none(LineQuality q) { return !pairs_well(q, {256, 257}); }

}  // namespace xgemm::matmul
