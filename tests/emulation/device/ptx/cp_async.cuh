// The emulator's csrc/device/ptx/cp_async.cuh.
#pragma once
#include "emulation.h"

namespace xgemm {

template <int kBytes>
void cp_async(void* dst, const void* src, int bytes, emulation::Where where = emulation::Where::current()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  emulation::cp_async(dst, src, kBytes, bytes, where);
}
inline void cp_async_or_zeros(void* dst, const void* src, bool exists, emulation::Where where = emulation::Where::current()) {
  emulation::cp_async(dst, src, 16, exists ? 16 : 0, where);
}
inline void cp_async_if(void* dst, const void* src, bool exists, emulation::Where where = emulation::Where::current()) {
  if (exists) emulation::cp_async(dst, src, 16, 16, where);
}
inline void cp_async_commit() { emulation::cp_async_commit(); }
template <int kPending>
void cp_async_wait() {
  emulation::cp_async_wait(kPending);
}

}  // namespace xgemm
