// The emulator's csrc/device/ptx/mbarrier.cuh.
#pragma once
#include "emulation.h"

namespace xgemm::ptx {

using emulation::Where;
using Barrier = std::uint64_t;

std::uint32_t shared_address(const void* pointer, Where where = Where::current());
void barrier_init(Barrier* barrier, std::uint32_t arrivals, Where where = Where::current());
inline void fence_barrier_init() {}
void barrier_arrive(Barrier* barrier, Where where = Where::current());
void barrier_arrive_expect(Barrier* barrier, std::uint32_t bytes, Where where = Where::current());
void barrier_arrive_copies(Barrier* barrier, Where where = Where::current());
void barrier_arrive_if(std::uint32_t address, bool really, Where where = Where::current());
bool barrier_test(const Barrier* barrier, std::uint32_t parity, Where where = Where::current());
void barrier_wait(Barrier* barrier, std::uint32_t parity, Where where = Where::current());

}  // namespace xgemm::ptx
