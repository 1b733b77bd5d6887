// bf16x3: the six products of a block on the tensor cores, and the addition of their sums in fp32 registers.
//
//   hi hi has its own accumulator, which is added to `total` after each block of 64 k (promotion). Its products have 16 bits,
//   so the tensor core, which truncates, seldom loses any. The other products' sums, and the rounding errors of promotion, stay
//   in `small` for kFlush blocks.
#pragma once
#include "matmul/bf16x3/fragments.cuh"

namespace xgemm::matmul::bf16x3 {

/// Truncation's loss in a block's sum of hi hi, relative to it (measured: about an ulp). A sum that ends in zero bits, such as
/// a single product, loses nothing.
inline constexpr float kTruncated = 0x1p-24f;
inline constexpr unsigned kTruncatedBits = 15;
inline constexpr unsigned kFlush = 16;  // blocks after which `small` is added: truncation keeps shrinking it

/// Starts a block's products. `slot_a`: descriptor of the slot. kHalves, for a short K: the even steps' products of hi hi are
/// summed in `total`, because truncation shows in a sum of few terms.
template <bool kHalves, int kCount>
__device__ __forceinline__ void multiply(Fragments& fragments, std::uint64_t slot_a, float (&total)[kCount],
                                         float (&small)[kCount], float (&large)[kCount]) {
  using Layout = ptx::OperandLayout<true, 128, 0>;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {  // products grouped by A's part: fewer live descriptors
    const auto product = [&](auto& sums, int part_b, int part_a, bool adds) {
      ptx::WgmmaRegisters<bf16>::mma(sums, fragments[step][part_b],
                                     slot_a + (part_a * Shared::kPartBytes + step * Layout::kStepBytes) / 16, adds);
    };
    product(small, 0, 2, true);
    product(small, 1, 1, true);
    product(small, 0, 1, true);
    product(small, 2, 0, true);
    product(small, 1, 0, true);
    if constexpr (!kHalves)
      product(large, 0, 0, step > 0);
    else if (step % 2 == 0)
      product(total, 0, 0, step > 0);
    else
      product(large, 0, 0, step > 1);
  }
  ptx::wgmma_commit();
}

/// total += large. Adds to `small` the rounding error and truncation's average loss. Fast2Sum: the error is exact unless the
/// block's sum is far larger than `total`.
template <bool kHalves, int kCount>
__device__ __forceinline__ void promote(float (&total)[kCount], float (&small)[kCount], const float (&large)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float sum = total[i] + large[i];
    float off;
    if constexpr (kHalves) {  // two steps each; 2Sum, as either may be larger (Compensated::of would spill)
      const float of_large = sum - total[i];
      off = (total[i] - (sum - of_large)) + (large[i] - of_large);
      if (__float_as_uint(large[i]) & kTruncatedBits) off = fmaf(large[i], kTruncated / 2, off);
      if (__float_as_uint(total[i]) & kTruncatedBits) off = fmaf(total[i], kTruncated / 2, off);
    } else {
      off = large[i] - (sum - total[i]);
      if (__float_as_uint(large[i]) & kTruncatedBits) off = fmaf(large[i], kTruncated, off);
    }
    small[i] += off;
    total[i] = sum;
  }
}

/// total += small; `small` keeps the rounding error.
template <int kCount>
__device__ __forceinline__ void flush(float (&total)[kCount], float (&small)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float more = finite_part(small[i]), sum = total[i] + more;
    small[i] = more - (sum - total[i]);
    total[i] = sum;
  }
}

}  // namespace xgemm::matmul::bf16x3
