// The emulator's csrc/device/ptx/bulk_copy.cuh.
#pragma once
#include "device/ptx/mbarrier.cuh"

namespace xgemm::ptx {

void bulk_load(void* to, const void* from, std::uint32_t bytes, Barrier* barrier, Where where = Where::current());
void bulk_store(void* to, const void* from, std::uint32_t bytes, Where where = Where::current());
void tma_store_commit();
template <int kPending>
void tma_store_wait_read() {
  emulation::bulk_wait_read(kPending);
}
void fence_async_shared();

}  // namespace xgemm::ptx
