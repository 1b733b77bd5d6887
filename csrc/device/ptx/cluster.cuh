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

/// Its two halves, a thread by itself, where nothing but barriers (fence_barrier_init) has to be seen.
__device__ __forceinline__ void cluster_arrive_thread() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait_thread() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

/// The same where a CTA's warps have roles of their own and call it at different places: each warp meets as a whole.
__device__ __forceinline__ void cluster_sync_warps() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// The shared-memory address, in the whole cluster's window, of CTA `rank`'s place of `mine`.
__device__ __forceinline__ std::uint32_t remote_address(const void* mine, std::uint32_t rank) {
  std::uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(mine)), "r"(rank));
  return remote;
}

/// Arrives at CTA `rank`'s place of `mine`. (With `.release.cluster` each one is a fence that halves a main loop's speed.)
__device__ __forceinline__ void barrier_arrive(const Barrier* mine, std::uint32_t rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote_address(mine, rank)) : "memory");
}

/// Arrives where `really` says so, without a branch, at an address from remote_address(). (It would do for shared_address() too,
/// but takes longer.)
__device__ __forceinline__ void barrier_arrive_remote_if(std::uint32_t address, bool really) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %1, 0;\n@p mbarrier.arrive.shared::cluster.b64 _, [%0];\n}" ::"r"(address),
               "r"(static_cast<int>(really))
               : "memory");
}

/// Writes to an address from remote_address().
__device__ __forceinline__ void store_remote(std::uint32_t address, unsigned value) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ __forceinline__ void store_remote(std::uint32_t address, float x, float y) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

}  // namespace xgemm::ptx
