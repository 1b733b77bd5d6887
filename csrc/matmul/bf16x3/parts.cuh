// bf16x3: an fp32 number in three bf16 parts, x = hi + mid + lo, eight bits of x each.
//
//   Exact for numbers from 2^-109 on that do not round to infinity. Inf and NaN stand in hi alone: their other parts are NaN.
#pragma once
#include <cfloat>

#include "matmul/bf16x3/arguments.cuh"
#include "matmul/fp16_split/line_scale.cuh"

namespace xgemm::matmul::bf16x3 {

/// Splits two numbers into three bf16 pairs, the first number in the lower halves. The lower 16 bits of `lost` become nonzero
/// if a number is not represented exactly; Inf and NaN set all of them.
__device__ __forceinline__ void split_pair(float x, float y, std::uint32_t (&parts)[kParts], std::uint32_t& lost) {
  const auto rounded = [](float a, float b) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    return reinterpret_cast<const std::uint32_t&>(pair);
  };
  const auto first = [](std::uint32_t pair) { return __uint_as_float(pair << 16); };
  const auto second = [](std::uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); };
  parts[0] = rounded(x, y);
  const float rx = x - first(parts[0]), ry = y - second(parts[0]);
  parts[1] = rounded(rx, ry);
  const float lx = rx - first(parts[1]), ly = ry - second(parts[1]);
  parts[2] = __byte_perm(__float_as_uint(lx), __float_as_uint(ly), 0x7632);
  lost |= __float_as_uint(lx) | __float_as_uint(ly);
}

__device__ __forceinline__ bool any_lost(std::uint32_t lost) { return (lost & 0xffffu) != 0; }
/// May Inf or NaN, which hi represents, be the only cause?
__device__ __forceinline__ bool may_be_special(std::uint32_t lost) { return (lost & 0xffffu) == 0xffffu; }

__device__ __forceinline__ bool is_extreme_number(float x) { return is_extreme(__float_as_uint(x) & 0x7fffffffu); }

/// x without NaN and infinities, for a correction: where it has one, the sum is infinite or NaN without it.
__device__ __forceinline__ float finite_part(float x) { return fminf(fmaxf(x, -FLT_MAX), FLT_MAX); }

/// Splits a unit of A, four rows by four of k (`v`: along k, or its transpose), and writes its parts: wgmma's K-major operand.
template <class Config>
__device__ __forceinline__ void split_unit(const Vector<float, 4> (&v)[4], auto along_k, unsigned char* slot, int first_row,
                                           int k, std::uint32_t& lost) {
#pragma unroll
  for (int x = 0; x < 4; ++x) {
    const auto value = [&](int y) { return along_k ? v[x][y] : v[y][x]; };
    const int row = first_row + x;
    std::uint32_t first[kParts], second[kParts];
    split_pair(value(0), value(1), first, lost);
    split_pair(value(2), value(3), second, lost);
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      *reinterpret_cast<uint2*>(slot + part * Shared<Config>::kPartBytes + row * 128 + ((k / 8) ^ (row % 8)) * 16 + k % 8 * 2) = {
          first[part], second[part]};
  }
  if constexpr (Config::kValue.fallback) {
    if (may_be_special(lost)) {  // is there a number that the parts cannot represent?
      lost = 0;
#pragma unroll
      for (int i = 0; i < 16; ++i) lost |= is_extreme_number(v[i / 4][i % 4]);
    }
  }
}

}  // namespace xgemm::matmul::bf16x3
