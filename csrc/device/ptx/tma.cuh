// TMA (cp.async.bulk.tensor): copies of boxes of a tensor described by a tensor map (device/tensor_map.h). PTX ISA,
// "cp.async.bulk.tensor". Coordinates are in elements, innermost first; what lies outside the tensor reads as zero and counts as
// bytes all the same.
#pragma once
#include <cuda.h>

#include "device/ptx/mbarrier.cuh"

namespace xgemm::ptx {

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<std::uint64_t>(map)) : "memory");
}

/// Box at (c0, c1, c2) to shared memory; completes on `barrier`.
__device__ __forceinline__ void tma_load(void* destination, const CUtensorMap* map, Barrier* barrier, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
          shared_address(destination)),
      "l"(reinterpret_cast<std::uint64_t>(map)), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

/// Box in shared memory to (c0, c1, c2); what lies outside the tensor is not written. One of this thread's bulk group.
__device__ __forceinline__ void tma_store(const CUtensorMap* map, const void* source, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(
                   reinterpret_cast<std::uint64_t>(map)),
               "r"(shared_address(source)), "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Until at most kPending of this thread's groups still read shared memory.
template <int kPending>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
/// Makes what this thread has written to shared memory visible to TMA.
__device__ __forceinline__ void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace xgemm::ptx
