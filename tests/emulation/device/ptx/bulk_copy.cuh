// The emulator's csrc/device/ptx/bulk_copy.cuh.
#pragma once
#include "device/ptx/mbarrier.cuh"

namespace xgemm::ptx {

inline void bulk_load(void* to, const void* from, std::uint32_t bytes, Barrier* barrier, Where where = Where::current()) {
  emulation::bulk_load(shared_address(to, where), from, bytes, shared_address(barrier, where), where);
}
inline void bulk_store(void* to, const void* from, std::uint32_t bytes, Where where = Where::current()) {
  emulation::bulk_store(to, shared_address(from, where), bytes, where);
}
inline void tma_store_commit() { emulation::bulk_commit(); }
template <int kPending>
void tma_store_wait_read() {
  emulation::bulk_wait_read(kPending);
}
inline void fence_async_shared() {
  emulation::proxy_fence();
  emulation::maybe_yield();
}

}  // namespace xgemm::ptx
