// The emulator's csrc/device/ptx/math.cuh.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cmath>
#include <cstdint>

namespace xgemm::ptx {

inline float exp2_approx(float x) {
  const float y = exp2f(x);
  return std::fpclassify(y) == FP_SUBNORMAL ? 0.f : y;
}
inline float max_nan(float a, float b) { return a != a || b != b ? NAN : fmaxf(a, b); }
/// `low` in the lower half.
inline std::uint32_t pack_half2(float low, float high) { return std::bit_cast<std::uint32_t>(__floats2half2_rn(low, high)); }
inline std::uint32_t pack_bfloat2(float low, float high) {
  return std::bit_cast<std::uint32_t>(__floats2bfloat162_rn(low, high));
}
template <class T>
std::uint32_t pack_pair(float low, float high) {
  return sizeof(T) == 2 && std::is_same_v<T, __half> ? pack_half2(low, high) : pack_bfloat2(low, high);
}

}  // namespace xgemm::ptx
