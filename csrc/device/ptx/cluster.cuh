// Clusters of CTAs on sm_90: rank, barrier, and stores to another CTA's shared memory. PTX ISA, "barrier.cluster", "mapa".
#pragma once
#include "device/ptx/mbarrier.cuh"

namespace xgemm::ptx {

__device__ __forceinline__ std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// All threads of all CTAs of the cluster; what they wrote to each other's shared memory before is visible after.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

/// The shared-memory address, in the whole cluster's window, of CTA `rank`'s place of `mine`.
__device__ __forceinline__ std::uint32_t remote_address(const void* mine, std::uint32_t rank) {
  std::uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(mine)), "r"(rank));
  return remote;
}

/// Arrives at a barrier at an address from remote_address(); this thread's writes before it are visible to who waits for the
/// phase.
__device__ __forceinline__ void arrive_remote(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Orders this thread's accesses before those that follow, for all threads of the cluster.
__device__ __forceinline__ void fence_cluster() { asm volatile("fence.acq_rel.cluster;" ::: "memory"); }

/// Writes to an address from remote_address().
__device__ __forceinline__ void store_remote(std::uint32_t address, unsigned value) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ __forceinline__ void store_remote(std::uint32_t address, float x, float y) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

}  // namespace xgemm::ptx
