// The emulator's csrc/device/ptx/mma_f64.cuh.
#pragma once
#include "emulation.h"

namespace xgemm::ptx {

inline void mma_m16n8k16(double (&d)[4], const double (&a)[2][4], const double (&b)[4],
                         emulation::Where where = emulation::Where::current()) {
  emulation::mma_f64_m16n8k16(d, a, b, where);
}
inline void mma_m8n8k4(double (&d)[2], double a, double b, emulation::Where where = emulation::Where::current()) {
  emulation::mma_f64_m8n8k4(d, a, b, where);
}

}  // namespace xgemm::ptx
