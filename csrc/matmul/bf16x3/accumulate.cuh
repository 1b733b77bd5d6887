// bf16x3: the six products of a block on the tensor cores, and what becomes of their sums in fp32 registers.
//
//   hi hi has an accumulator of its own, which is added to `total` after each block of 64 k (promotion): its products have 16
//   bits, so that the tensor core, which truncates, seldom has to. The other products' sums stay in `small` for kFlush blocks,
//   and what promotion rounds off goes on with them.
#pragma once
#include "matmul/bf16x3/fragments.cuh"

namespace xgemm::matmul::bf16x3 {

/// What truncation takes off a block's sum of hi hi (measured: about an ulp), as a part of it; nothing off a sum that ends in
/// zeros, as a single product does.
inline constexpr float kTruncated = 0x1p-24f;
inline constexpr unsigned kTruncatedBits = 15;
inline constexpr unsigned kFlush = 16;  // blocks after which small products' sums are added: truncation shrinks them all the time

/// Starts a block's products. `slot_a`: descriptor of the slot. kHalves: every other step's products of hi hi are summed in
/// `total`, for a short K: few terms are the sum there, and truncation would show.
template <class Config, bool kHalves, int kCount>
__device__ __forceinline__ void multiply(Fragments& fragments, std::uint64_t slot_a, float (&total)[kCount],
                                         float (&small)[kCount], float (&large)[kCount]) {
  using Layout = ptx::OperandLayout<true, 128, 0>;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {  // all that takes one part of A together: fewer descriptors are alive
    const auto product = [&](auto& sums, int part_b, int part_a, bool adds) {
      ptx::WgmmaRegisters<bf16>::mma(sums, fragments[step][part_b],
                                     slot_a + (part_a * Shared<Config>::kPartBytes + step * Layout::kStepBytes) / 16, adds);
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

/// total += large, and to `small` what that rounds off and what truncation took on average. Fast2Sum: what is rounded off is
/// exact, but where the block's sum is far larger than all before it.
template <bool kHalves, int kCount>
__device__ __forceinline__ void promote(float (&total)[kCount], float (&small)[kCount], const float (&large)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float sum = total[i] + large[i];
    float off;
    if constexpr (kHalves) {  // two steps each; either may be the larger (Compensated::of, but by operators: else it spills)
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

/// total += small, which keeps what that rounds off.
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
