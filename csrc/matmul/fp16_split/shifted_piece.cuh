// Sixteen bytes at any element's address, in two steps, so that a thread can have many under way: load() asks for the aligned
// blocks that hold them, value() shifts. A block is read only for an element in it that is wanted, and nothing from the operand's
// end on is.
#pragma once
#include "device/bytes16.cuh"

namespace xgemm::matmul {

template <class Bits>
struct ShiftedPiece {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(Bits));
  uint4 low, high;

  /// The aligned block at q, of which bytes from `end` on do not exist.
  __device__ __forceinline__ static uint4 block(const char* q, const char* end) {
    return end - q >= 16 ? load_aligned16(q) : load_front<Bits>(q, static_cast<unsigned>(end - q));
  }

  /// The first `count` elements at p; `end`: behind the operand's last element.
  __device__ __forceinline__ void load(const Bits* p, int count, const Bits* end) {
    const unsigned shift = misalignment(p);
    const char* const q = reinterpret_cast<const char*>(p) - shift;
    low = high = {0, 0, 0, 0};
    if (count > 0) low = block(q, reinterpret_cast<const char*>(end));
    if (static_cast<int>(shift) + count * static_cast<int>(sizeof(Bits)) > 16)
      high = block(q + 16, reinterpret_cast<const char*>(end));
  }

  /// Zeros from `count` elements on; `shift`: p's misalignment.
  __device__ __forceinline__ uint4 value(unsigned shift, int count) const {
    uint4 raw = shift_bytes(low, high, shift);
    if (count < kCount) {
      Pack<Bits> pack = as_pack<Bits>(raw);
#pragma unroll
      for (int j = 0; j < kCount; ++j)
        if (j >= count) pack.values[j] = 0;
      raw = as_raw(pack);
    }
    return raw;
  }
};

}  // namespace xgemm::matmul
