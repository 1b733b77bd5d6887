// The emulator's csrc/device/ptx/mma.cuh.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "emulation.h"

namespace xgemm::ptx {

inline void ldmatrix(std::uint32_t (&r)[4], std::uint32_t address, emulation::Where where = emulation::Where::current()) {
  emulation::load_matrices(r, address, false, where);
}
inline void ldmatrix(std::uint32_t (&r)[4], const void* row, emulation::Where where = emulation::Where::current()) {
  emulation::load_matrices(r, emulation::shared_address_of(row, where), false, where);
}
inline void ldmatrix_transposed(std::uint32_t (&r)[4], std::uint32_t address,
                                emulation::Where where = emulation::Where::current()) {
  emulation::load_matrices(r, address, true, where);
}
inline void ldmatrix_transposed(std::uint32_t (&r)[4], const void* row, emulation::Where where = emulation::Where::current()) {
  emulation::load_matrices(r, emulation::shared_address_of(row, where), true, where);
}

template <class T>
void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
         emulation::Where where = emulation::Where::current()) {
  static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, float>);
  constexpr auto kType = std::is_same_v<T, __half>  ? emulation::MmaType::f16
                         : std::is_same_v<T, float> ? emulation::MmaType::tf32
                                                    : emulation::MmaType::bf16;
  emulation::mma_m16n8(kType, d, a, b0, b1, where);
}

inline std::uint32_t round_to_tf32(std::uint32_t x) { return emulation::to_tf32(x); }

}  // namespace xgemm::ptx
