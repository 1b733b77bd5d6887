// Clusters of CTAs on sm_90: rank, barrier, and stores to another CTA's shared memory. PTX ISA, "barrier.cluster", "mapa",
// "st.async".
#pragma once
#include "device/ptx/mbarrier.cuh"

namespace xgemm::ptx {

__device__ __forceinline__ std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// The cluster's index in the grid; blockIdx.x for a launch without clusters.
__device__ __forceinline__ std::uint32_t cluster_index() {
  std::uint32_t index;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}

/// Barrier of all threads of the cluster. Their writes to each other's shared memory before it are visible after it.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

/// Separate arrive and wait for single threads. Only mbarriers (after fence_barrier_init) become visible.
__device__ __forceinline__ void cluster_arrive_thread() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait_thread() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

/// After fence_barrier_init(): the barriers that this thread initialised are visible to the threads that have waited.
__device__ __forceinline__ void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

/// cluster_sync() for CTAs whose warps have different roles and call it at different places: each warp arrives as a whole.
__device__ __forceinline__ void cluster_sync_warps() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// The shared::cluster address that corresponds to `mine` in CTA `rank`.
__device__ __forceinline__ std::uint32_t remote_address(const void* mine, std::uint32_t rank) {
  std::uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(mine)), "r"(rank));
  return remote;
}

/// Arrives at the barrier that corresponds to `mine` in CTA `rank`. (With `.release.cluster` each arrival is a fence, which
/// halves a main loop's speed.)
__device__ __forceinline__ void barrier_arrive(const Barrier* mine, std::uint32_t rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote_address(mine, rank)) : "memory");
}

/// Arrives if `really`, without a branch, at an address from remote_address() (from shared_address() too, but slower).
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

/// Writes `value` to the address that corresponds to `to` in CTA `rank`, and completes its bytes on the barrier that
/// corresponds to `barrier` there.
__device__ __forceinline__ void store_async(const void* to, unsigned value, Barrier* barrier, std::uint32_t rank) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(remote_address(to, rank)),
               "r"(value), "r"(remote_address(barrier, rank))
               : "memory");
}
__device__ __forceinline__ void store_async(const void* to, unsigned long long value, Barrier* barrier, std::uint32_t rank) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(remote_address(to, rank)),
               "l"(value), "r"(remote_address(barrier, rank))
               : "memory");
}
__device__ __forceinline__ void store_async(const void* to, const float4& value, Barrier* barrier, std::uint32_t rank) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                   remote_address(to, rank)),
               "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(remote_address(barrier, rank))
               : "memory");
}

}  // namespace xgemm::ptx
