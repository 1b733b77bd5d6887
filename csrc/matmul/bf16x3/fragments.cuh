// bf16x3: B from its slot in shared memory to wgmma's register operand, split on the way (C^T = B^T A^T: B's columns are the
// operand's rows).
#pragma once
#include "device/ptx/wgmma.cuh"
#include "matmul/bf16x3/parts.cuh"

namespace xgemm::matmul::bf16x3 {

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
template <class Config>
struct FragmentPlace {
  static constexpr bool kKMajor = Config::kValue.k_major_b;
  int lane, warp, quad, first, second;

  __device__ __forceinline__ FragmentPlace() {
    const int thread = thread_index();
    lane = thread % 32, warp = thread / 32 % 4, quad = lane % 4;
    const int octet = lane / 4;
    first = warp * 16 + (kKMajor ? octet % 4 * 2 + octet / 4 : 2 * octet), second = first + (kKMajor ? 8 : 1);
  }
};

/// Reads a thread's numbers of a slot of B.
template <class Config>
struct SlotReader {
  static constexpr bool kKMajor = Config::kValue.k_major_b;

  /// Bytes from the slot to the thread's first number. Its others are at fixed distances, but for the swizzle.
  static __device__ __forceinline__ std::uint32_t first_offset() {
    const FragmentPlace<Config> at;
    const int line = (warp_of_role() / 4 - 2) * 64 + at.first;
    return static_cast<std::uint32_t>(kKMajor ? line * 128 + ((at.quad / 2) ^ (line % 8)) * 16 + at.quad % 2 * 8
                                              : line / 32 * 8192 + 2 * at.quad * 128 + ((line % 32 / 4) ^ (2 * at.quad)) * 16 +
                                                    line % 4 * 4);
  }

  /// k = 2 quad + 8 e and the next of the step's 16, of the thread's first and second column; `at`: its first number.
  static __device__ __forceinline__ void load(std::uint32_t at, int step, int e, Vector<float, 2>& first,
                                              Vector<float, 2>& second) {
    if constexpr (kKMajor) {
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
    if constexpr (Config::kValue.fallback) {
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
