// Loads 16 bytes at any element's address in two steps, so that a thread can have many loads in flight: load() reads the
// aligned blocks that hold them, value() shifts. A block is read only if it holds a wanted element, and nothing is read at or
// after the operand's end.
#pragma once
#include "device/bytes16.cuh"

namespace xgemm::matmul {

template <class Bits>
struct ShiftedPiece {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(Bits));
  uint4 low, high;

  /// Loads the aligned block at q; bytes from `end` on are not read.
  __device__ __forceinline__ static uint4 block(const char* q, const char* end) {
    return end - q >= 16 ? load_aligned16(q) : load_front<Bits>(q, static_cast<unsigned>(end - q));
  }

  /// Loads the first `count` elements at p; `end`: one past the operand's last element.
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
