// The emulator's csrc/device/ptx/mma.cuh.
#pragma once
#include "emulation.h"

namespace xgemm::ptx {

using emulation::Where;

void ldmatrix(std::uint32_t (&r)[4], std::uint32_t address, Where where = Where::current());
void ldmatrix(std::uint32_t (&r)[4], const void* row, Where where = Where::current());
void ldmatrix_transposed(std::uint32_t (&r)[4], std::uint32_t address, Where where = Where::current());
void ldmatrix_transposed(std::uint32_t (&r)[4], const void* row, Where where = Where::current());

template <class T>
void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, Where where = Where::current()) {
  emulation::mma_m16n8(emulation::kMmaType<T>, d, a, b0, b1, where);
}

inline std::uint32_t round_to_tf32(std::uint32_t x) { return emulation::to_tf32(x); }

}  // namespace xgemm::ptx
