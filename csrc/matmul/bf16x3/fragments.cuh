// bf16x3: an fp32 number in three bf16 parts, x = hi + mid + lo, eight bits of x each; and B from its slot in shared memory to
// wgmma's register operand, split on the way (C^T = B^T A^T: B's columns are the operand's rows).
//
//   Exact for numbers from 2^-109 on that do not round to infinity. Inf and NaN stand in hi alone: their other parts are NaN.
#pragma once
#include <cfloat>

#include "device/ptx/wgmma.cuh"
#include "matmul/bf16x3/arguments.cuh"
#include "matmul/fp16_split/line_scale.cuh"

namespace xgemm::matmul::bf16x3 {

/// Splits two numbers into three bf16 pairs, the first number in the lower halves. The lower 16 bits of `lost` become nonzero
/// if a number is not represented exactly; Inf and NaN set all of them.
__device__ __forceinline__ void split_pair(float x, float y, std::uint32_t (&parts)[kParts], std::uint32_t& lost) {
  const auto first = [](std::uint32_t pair) { return __uint_as_float(pair << 16); };
  const auto second = [](std::uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); };
  parts[0] = pack_pair<bf16>(x, y);
  const float rx = x - first(parts[0]), ry = y - second(parts[0]);
  parts[1] = pack_pair<bf16>(rx, ry);
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
template <Bf16x3Config kConfig>
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
      *reinterpret_cast<uint2*>(slot + part * Shared::kPartBytes + row * 128 + ((k / 8) ^ (row % 8)) * 16 + k % 8 * 2) = {
          first[part], second[part]};
  }
  if constexpr (kConfig.fallback) {
    if (may_be_special(lost)) {  // is there a number that the parts cannot represent?
      lost = 0;
#pragma unroll
      for (int i = 0; i < 16; ++i) lost |= is_extreme_number(v[i / 4][i % 4]);
    }
  }
}

inline constexpr int kSteps = kBlock / 16;
using Fragments = std::uint32_t[kSteps][kParts][4];

/// Keeps the compiler from moving accesses of the registers across this point: the tensor cores read them.
__device__ __forceinline__ void pin(Fragments& fragments) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int part = 0; part < kParts; ++part) ptx::wgmma_pin(fragments[step][part]);
}

/// A thread's place in its warpgroup's 64 columns of B. Its fragments stand for rows l / 4 and l / 4 + 8 of its warp's 16; the
/// columns `first` and `second` that it takes for them are chosen so that it reads swizzled shared memory without bank conflicts.
template <Bf16x3Config kConfig>
struct FragmentPlace {
  int thread = thread_index(), lane = thread % 32, warp = thread / 32 % 4, quad = lane % 4, octet = lane / 4;
  int first = warp * 16 + (kConfig.k_major_b ? octet % 4 * 2 + octet / 4 : 2 * octet),
      second = first + (kConfig.k_major_b ? 8 : 1);
};

/// Reads a thread's numbers of a slot of B.
template <Bf16x3Config kConfig>
struct SlotReader {
  /// Bytes from the slot to the thread's first number. Its others are at fixed distances, but for the swizzle.
  static __device__ __forceinline__ std::uint32_t first_offset() {
    const FragmentPlace<kConfig> at;
    const int line = (warp_of_role() / 4 - 2) * 64 + at.first;
    return static_cast<std::uint32_t>(kConfig.k_major_b ? line * 128 + ((at.quad / 2) ^ (line % 8)) * 16 + at.quad % 2 * 8
                                                        : line / 32 * 8192 + 2 * at.quad * 128 +
                                                              ((line % 32 / 4) ^ (2 * at.quad)) * 16 + line % 4 * 4);
  }

  /// k = 2 quad + 8 e and the next of the step's 16, of the thread's first and second column; `at`: its first number.
  static __device__ __forceinline__ void load(std::uint32_t at, int step, int e, Vector<float, 2>& first,
                                              Vector<float, 2>& second) {
    if constexpr (kConfig.k_major_b) {
      const std::uint32_t here = (at ^ (step % 2 * 4 + 2 * e) * 16) + step / 2 * 16384;
      first = ptx::load_pair(here);
      second = ptx::load_pair(here + 8 * 128);
    } else {
      const int k = step * 16 + 8 * e;
      const auto x = ptx::load_pair(at + k * 128), y = ptx::load_pair((at ^ 16) + (k + 1) * 128);
      first = {{x[0], y[0]}}, second = {{x[1], y[1]}};
    }
  }

  /// All of a slot in three parts. kLifted: times the powers of two of the columns. Returns what split_pair() gathers as `lost`.
  template <bool kLifted>
  static __device__ __forceinline__ std::uint32_t split(Fragments& fragments, std::uint32_t at, float lift_first,
                                                        float lift_second) {
    std::uint32_t lost = 0;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        Vector<float, 2> first, second;
        load(at, step, e, first, second);
        if constexpr (kLifted) {
#pragma unroll
          for (int i = 0; i < 2; ++i) first[i] *= lift_first, second[i] *= lift_second;
        }
        std::uint32_t parts[kParts];
        split_pair(first[0], first[1], parts, lost);
#pragma unroll
        for (int part = 0; part < kParts; ++part) fragments[step][part][2 * e] = parts[part];
        split_pair(second[0], second[1], parts, lost);
#pragma unroll
        for (int part = 0; part < kParts; ++part) fragments[step][part][2 * e + 1] = parts[part];
      }
    }
    if constexpr (kConfig.fallback) {
      if (may_be_special(lost)) {  // is there a number that the parts cannot represent?
        lost = 0;
#pragma unroll 1
        for (int i = 0; i < 2 * kSteps; ++i) {
          Vector<float, 2> first, second;
          load(at, i / 2, i % 2, first, second);
          lost |= is_extreme_number(first[0] * lift_first) || is_extreme_number(first[1] * lift_first) ||
                  is_extreme_number(second[0] * lift_second) || is_extreme_number(second[1] * lift_second);
        }
      }
    }
    return lost;
  }
};

}  // namespace xgemm::matmul::bf16x3
