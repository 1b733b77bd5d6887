// The emulator's csrc/device/ptx/stmatrix.cuh.
#pragma once
#include "emulation.h"

namespace xgemm::ptx {

using emulation::Where;

void store_matrices(std::uint32_t address, const std::uint32_t (&r)[4], Where where = Where::current());
void store_matrices_transposed(std::uint32_t address, const std::uint32_t (&r)[4], Where where = Where::current());
inline void store_pair(std::uint32_t address, float x, float y, Where where = Where::current()) {
  *emulation::shared<float2>(address, where) = {x, y};
}
inline uint4 load_shared16(std::uint32_t address, Where where = Where::current()) {
  return *emulation::shared<uint4>(address, where);
}
inline unsigned load_shared4(std::uint32_t address, Where where = Where::current()) {
  return *emulation::shared<unsigned>(address, where);
}
inline unsigned load_shared2(std::uint32_t address, Where where = Where::current()) {
  return *emulation::shared<std::uint16_t>(address, where);
}
inline float load_shared_float(std::uint32_t address, Where where = Where::current()) {
  return *emulation::shared<float>(address, where);
}
inline void store_global16_if(void* to, const uint4& v, bool really) {
  if (!really) return;
  if (reinterpret_cast<std::uintptr_t>(to) % 16) emulation::fail("a store of 16 bytes to an unaligned address");
  *static_cast<uint4*>(to) = v;
}

}  // namespace xgemm::ptx
