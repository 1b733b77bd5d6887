// Bulk copies of sm_90 (cp.async.bulk): contiguous bytes between global and this block's shared memory, done by the copy
// engine. PTX ISA, "cp.async.bulk". Both addresses and the size are multiples of 16 bytes.
#pragma once
#include "device/ptx/mbarrier.cuh"

namespace xgemm::ptx {

/// Global to shared memory; completes `bytes` on `barrier`.
__device__ __forceinline__ void bulk_load(void* to, const void* from, std::uint32_t bytes, Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

/// Shared to global memory, in this thread's bulk group. Every writer of `from` has called fence_async_shared before a barrier.
__device__ __forceinline__ void bulk_store(void* to, const void* from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}

/// Commits this thread's stores so far, with a tensor map (tma.cuh) or without, as a group.
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until at most kPending of this thread's groups still read shared memory.
template <int kPending>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

/// Orders this thread's plain accesses to shared memory before later bulk copies: they see its writes and do not overwrite what
/// it is still reading. An mbarrier's arrival alone does not wait for loads in flight.
__device__ __forceinline__ void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace xgemm::ptx
