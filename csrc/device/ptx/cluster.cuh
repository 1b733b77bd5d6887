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

/// Writes `value` to the place of `mine` in CTA `rank` of the cluster.
__device__ __forceinline__ void store_remote(unsigned* mine, std::uint32_t rank, unsigned value) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "st.shared::cluster.u32 [remote], %2;\n"
      "}" ::"r"(shared_address(mine)),
      "r"(rank), "r"(value)
      : "memory");
}

}  // namespace xgemm::ptx
