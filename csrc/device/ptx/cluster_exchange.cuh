// Values sent between the CTAs of a cluster on sm_90 without a cluster-wide fence. PTX ISA, "barrier.cluster", "st.async".
#pragma once
#include "device/ptx/cluster.cuh"

namespace xgemm::ptx {

/// The cluster's index in the grid; blockIdx.x for a launch without clusters.
__device__ __forceinline__ std::uint32_t cluster_index() {
  std::uint32_t index;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}

/// After fence_barrier_init(): the barriers that this thread initialised are visible to the threads that have waited.
__device__ __forceinline__ void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

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
