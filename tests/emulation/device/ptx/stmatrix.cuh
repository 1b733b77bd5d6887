// The emulator's csrc/device/ptx/stmatrix.cuh.
#pragma once
#include <cstring>

#include "emulation.h"

namespace xgemm::ptx {

inline void store_matrices(std::uint32_t address, const std::uint32_t (&r)[4],
                           emulation::Where where = emulation::Where::current()) {
  emulation::store_matrices(address, r, false, where);
}
inline void store_matrices_transposed(std::uint32_t address, const std::uint32_t (&r)[4],
                                      emulation::Where where = emulation::Where::current()) {
  emulation::store_matrices(address, r, true, where);
}
inline void store_pair(std::uint32_t address, float x, float y, emulation::Where where = emulation::Where::current()) {
  const float values[2] = {x, y};
  std::memcpy(emulation::shared_pointer(address, 8, 8, where), values, 8);
}
#define XGEMM_LOAD(name, Result, T)                                                                 \
  inline Result name(std::uint32_t address, emulation::Where where = emulation::Where::current()) { \
    return *static_cast<const T*>(emulation::shared_pointer(address, sizeof(T), sizeof(T), where)); \
  }
XGEMM_LOAD(load_shared16, uint4, uint4)
XGEMM_LOAD(load_shared4, unsigned, unsigned)
XGEMM_LOAD(load_shared2, unsigned, std::uint16_t)
XGEMM_LOAD(load_shared_float, float, float)
#undef XGEMM_LOAD
inline void store_global16_if(void* to, const uint4& v, bool really) {
  if (!really) return;
  if (reinterpret_cast<std::uintptr_t>(to) % 16) emulation::fail("a store of 16 bytes to an unaligned address");
  std::memcpy(to, &v, 16);
}

}  // namespace xgemm::ptx
