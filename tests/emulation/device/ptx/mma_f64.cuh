// The emulator's csrc/device/ptx/mma_f64.cuh.
#pragma once
#include "emulation.h"

namespace xgemm::ptx {

using emulation::Where;

void mma_m16n8k16(double (&d)[4], const double (&a)[2][4], const double (&b)[4], Where where = Where::current());
void mma_m8n8k4(double (&d)[2], double a, double b, Where where = Where::current());

}  // namespace xgemm::ptx
