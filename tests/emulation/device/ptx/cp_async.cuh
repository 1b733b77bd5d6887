// The emulator's csrc/device/ptx/cp_async.cuh.
#pragma once
#include "emulation.h"

namespace xgemm {

using emulation::Where;

template <int kBytes>
void cp_async(void* dst, const void* src, int bytes, Where where = Where::current()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  emulation::cp_async(dst, src, kBytes, bytes, where);
}
inline void cp_async_or_zeros(void* dst, const void* src, bool exists, Where where = Where::current()) {
  cp_async<16>(dst, src, exists ? 16 : 0, where);
}
inline void cp_async_if(void* dst, const void* src, bool exists, Where where = Where::current()) {
  if (exists) cp_async<16>(dst, src, 16, where);
}
void cp_async_commit();
template <int kPending>
void cp_async_wait() {
  emulation::cp_async_wait(kPending);
}

}  // namespace xgemm
