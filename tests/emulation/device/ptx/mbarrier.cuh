// The emulator's csrc/device/ptx/mbarrier.cuh.
#pragma once
#include <cstdint>

#include "emulation.h"

namespace xgemm::ptx {

using Where = emulation::Where;
using Barrier = std::uint64_t;

inline std::uint32_t shared_address(const void* pointer, Where where = Where::current()) {
  return emulation::shared_address_of(pointer, where);
}
inline void barrier_init(Barrier* barrier, std::uint32_t arrivals, Where where = Where::current()) {
  emulation::barrier_init(shared_address(barrier, where), arrivals, where);
}
inline void fence_barrier_init() {}
inline void barrier_arrive(Barrier* barrier, Where where = Where::current()) {
  emulation::barrier_arrive(shared_address(barrier, where), 0, where);
}
inline void barrier_arrive_expect(Barrier* barrier, std::uint32_t bytes, Where where = Where::current()) {
  emulation::barrier_arrive(shared_address(barrier, where), bytes, where);
}
inline void barrier_arrive_copies(Barrier* barrier, Where where = Where::current()) {
  emulation::cp_async_arrive(shared_address(barrier, where), where);
}
inline void barrier_arrive_if(std::uint32_t address, bool really, Where where = Where::current()) {
  if (really) emulation::barrier_arrive(address, 0, where);
}
inline bool barrier_test(const Barrier* barrier, std::uint32_t parity, Where where = Where::current()) {
  return emulation::barrier_test(shared_address(barrier, where), parity, where);
}
inline void barrier_wait(Barrier* barrier, std::uint32_t parity, Where where = Where::current()) {
  emulation::barrier_wait(shared_address(barrier, where), parity, where);
}

}  // namespace xgemm::ptx
