// The products of a slot, and the promotion of their sums.
#pragma once
#include "device/ptx/wgmma.cuh"
#include "matmul/wgmma/arguments.cuh"

namespace xgemm::matmul::wgmma_detail {

/// total + the sum of a k-block of hi*hi, from which truncation takes an ulp on average. A sum that ends in four
/// zero bits has lost nothing: integers stay exact up to 2^20.
__device__ __forceinline__ float promoted(float sum, float total) {
  return fmaf(sum, __float_as_uint(sum) & 15 ? 1.f + 0x1p-23f : 1.f, total);
}

/// Products of a slot: of the only part, or of hi, and of lo*hi and hi*lo.
enum class Products : std::uint8_t { large, small };

/// Issues steps `from` to `to` - 1 of a slot's products as one committed group. `slot_a`, `slot_b`: descriptors of its first
/// bytes.
template <class Element, class Config, Products kProducts, int kCount>
__device__ __forceinline__ void multiply(float (&sums)[kCount], std::uint32_t slot_a, std::uint32_t slot_b, bool accumulate,
                                         int from, int to) {
  constexpr WgmmaConfig kConfig = Config::kValue;
  constexpr int kSteps = kConfig.blocks * kWgmmaTileK / 16;
  using LayoutA = ptx::OperandLayout<kConfig.k_major_a, 128, kConfig.piece_bytes()>;
  using LayoutB = ptx::OperandLayout<kConfig.k_major_b, 128, kConfig.piece_bytes()>;
  using Instruction = ptx::Wgmma<Element, kConfig.k_major_a, kConfig.k_major_b>;
#pragma unroll
  for (int product = 0; product < (kProducts == Products::small ? 2 : 1); ++product) {
    const bool part_a = kProducts == Products::small && product == 0, part_b = kProducts == Products::small && product == 1;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step < from || step >= to) continue;
      const int at_a =
          kConfig.k_major_a ? step / 4 * kConfig.bytes_a() + step % 4 * LayoutA::kStepBytes : step * LayoutA::kStepBytes;
      const int at_b =
          kConfig.k_major_b ? step / 4 * kConfig.bytes_b() + step % 4 * LayoutB::kStepBytes : step * LayoutB::kStepBytes;
      const int part_at_a = part_a * kConfig.blocks * kConfig.bytes_a(), part_at_b = part_b * kConfig.blocks * kConfig.bytes_b();
      Instruction::mma(sums, LayoutA::descriptor(slot_a, part_at_a + at_a), LayoutB::descriptor(slot_b, part_at_b + at_b),
                       accumulate || step > 0 || product > 0);
    }
  }
  ptx::wgmma_commit();
}

}  // namespace xgemm::matmul::wgmma_detail
