// The emulator's csrc/device/ptx/warpgroup.cuh.
#pragma once
#include "emulation.h"

namespace xgemm::ptx {

using emulation::Where;

template <int kRegisters>
void release_registers() {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
  emulation::registers_changed(kRegisters);
}
template <int kRegisters>
void acquire_registers() {
  release_registers<kRegisters>();
}

/// Lane 0, or the first that has not exited, of a converged warp.
bool elect_one(Where where = Where::current());
void named_barrier_sync(int id, int threads, Where where = Where::current());
void named_barrier_arrive(int id, int threads, Where where = Where::current());
inline void named_barrier_arrive_after(float computed, int id, int threads, Where where = Where::current()) {
  if (computed != -1.f) named_barrier_arrive(id, threads, where);
}
bool named_barrier_or(int id, int threads, bool condition, Where where = Where::current());

}  // namespace xgemm::ptx
