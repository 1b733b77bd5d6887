// The emulator's csrc/device/ptx/wgmma.cuh.
#pragma once
#include "device/vector.cuh"
#include "emulation.h"

namespace xgemm::ptx {

using emulation::Where;

template <bool kKMajor, int kRowBytes, int kBlockBytes>
struct OperandLayout {
  static_assert(kRowBytes == 128 || (kKMajor && kRowBytes == 64));
  static constexpr std::uint64_t kDescriptor = (std::uint64_t{kRowBytes == 128 ? 1 : 2} << 62) |
                                               (std::uint64_t{8 * kRowBytes / 16} << 32) |
                                               (std::uint64_t{kKMajor ? 1 : kBlockBytes / 16} << 16);
  static constexpr int kStepBytes = kKMajor ? 32 : 16 * kRowBytes;

  static std::uint64_t descriptor(std::uint32_t address) { return kDescriptor | (address & 0x3ffffu) >> 4; }
  static std::uint32_t descriptor_low(std::uint32_t address) { return static_cast<std::uint32_t>(descriptor(address)); }
  static std::uint64_t descriptor(std::uint32_t low, int bytes) {
    return (kDescriptor >> 32 << 32) | (low + static_cast<unsigned>(bytes / 16));
  }
};

inline Vector<float, 2> load_pair(std::uint32_t address, Where where = Where::current()) {
  return *emulation::shared<Vector<float, 2>>(address, where);
}

void wgmma_fence(Where where = Where::current());
void wgmma_commit(Where where = Where::current());
template <int kPending>
void wgmma_wait(Where where = Where::current()) {
  emulation::wgmma_wait(kPending, where);
}
template <class T, int kCount>
void wgmma_pin(T (&)[kCount]) {}
inline void stay_behind(float) {}  // only for ptxas

template <class Element, bool kKMajorA, bool kKMajorB>
struct Wgmma {
  template <int kCount>
  static void mma(float (&d)[kCount], std::uint64_t desc_a, std::uint64_t desc_b, bool accumulate,
                  Where where = Where::current()) {
    static_assert(kCount % 4 == 0 && kCount <= 128);
    emulation::wgmma({emulation::kMmaType<Element>, 2 * kCount, kKMajorA, kKMajorB}, d, nullptr, desc_a, desc_b, accumulate,
                     where);
  }
};

template <class Element, bool kKMajorB = true>
struct WgmmaRegisters {
  template <int kCount>
  static void mma(float (&d)[kCount], const std::uint32_t (&a)[4], std::uint64_t desc_b, bool accumulate,
                  Where where = Where::current()) {
    static_assert(kCount % 4 == 0 && kCount <= 128);
    emulation::wgmma({emulation::kMmaType<Element>, 2 * kCount, true, kKMajorB}, d, a, 0, desc_b, accumulate, where);
  }
};

template <int kCount>
void wgmma_tf32(float (&d)[kCount], std::uint64_t desc_a, std::uint64_t desc_b, bool accumulate, Where where = Where::current()) {
  Wgmma<float, true, true>::mma(d, desc_a, desc_b, accumulate, where);
}
template <int kCount>
void wgmma_tf32(float (&d)[kCount], const std::uint32_t (&a)[4], std::uint64_t desc_b, bool accumulate,
                Where where = Where::current()) {
  WgmmaRegisters<float>::mma(d, a, desc_b, accumulate, where);
}

}  // namespace xgemm::ptx
