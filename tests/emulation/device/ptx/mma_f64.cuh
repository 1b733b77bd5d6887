// The emulator's csrc/device/ptx/mma_f64.cuh.
#pragma once
#include "emulation.h"

namespace xgemm::ptx {

inline void mma_f64(double (&d)[4], const double (&a)[2][4], const double (&b)[4],
                    emulation::Where where = emulation::Where::current()) {
  emulation::mma_f64_m16n8k16(d, a, b, where);
}

}  // namespace xgemm::ptx
