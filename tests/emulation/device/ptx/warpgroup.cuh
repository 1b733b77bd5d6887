// The emulator's csrc/device/ptx/warpgroup.cuh.
#pragma once
#include "emulation.h"

namespace xgemm::ptx {

template <int kRegisters>
void release_registers() {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
  emulation::registers_changed(kRegisters);
}
template <int kRegisters>
void acquire_registers() {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
  emulation::registers_changed(kRegisters);
}

/// Lane 0, or the first that has not exited, of a converged warp.
inline bool elect_one(emulation::Where where = emulation::Where::current()) {
  bool elected = false;
  emulation::warp_collective(
      0xffffffffu, &elected,
      [](emulation::Arguments32 lanes) {
        for (void* const lane : lanes)
          if (lane) {
            *static_cast<bool*>(lane) = true;
            return;
          }
      },
      "elect.sync", where);
  return elected;
}

inline void named_barrier_sync(int id, int threads, emulation::Where where = emulation::Where::current()) {
  emulation::named_sync(id, threads, false, where);
}
inline void named_barrier_arrive(int id, int threads, emulation::Where where = emulation::Where::current()) {
  emulation::named_sync(id, threads, true, where);
}
inline void named_barrier_arrive_after(float computed, int id, int threads,
                                       emulation::Where where = emulation::Where::current()) {
  if (computed != -1.f) emulation::named_sync(id, threads, true, where);
}
inline bool named_barrier_or(int id, int threads, bool condition, emulation::Where where = emulation::Where::current()) {
  return emulation::named_or(id, threads, condition, where);
}

}  // namespace xgemm::ptx
