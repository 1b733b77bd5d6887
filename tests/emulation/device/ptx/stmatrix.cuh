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
inline uint4 load_shared16(std::uint32_t address, emulation::Where where = emulation::Where::current()) {
  uint4 v;
  std::memcpy(&v, emulation::shared_pointer(address, 16, 16, where), 16);
  return v;
}
inline unsigned load_shared4(std::uint32_t address, emulation::Where where = emulation::Where::current()) {
  unsigned v;
  std::memcpy(&v, emulation::shared_pointer(address, 4, 4, where), 4);
  return v;
}
inline unsigned load_shared2(std::uint32_t address, emulation::Where where = emulation::Where::current()) {
  std::uint16_t v;
  std::memcpy(&v, emulation::shared_pointer(address, 2, 2, where), 2);
  return v;
}
inline float load_shared_float(std::uint32_t address, emulation::Where where = emulation::Where::current()) {
  float v;
  std::memcpy(&v, emulation::shared_pointer(address, 4, 4, where), 4);
  return v;
}
inline void store_global16_if(void* to, const uint4& v, bool really) {
  if (!really) return;
  if (reinterpret_cast<std::uintptr_t>(to) % 16) emulation::fail("a store of 16 bytes to an unaligned address");
  std::memcpy(to, &v, 16);
}

}  // namespace xgemm::ptx
