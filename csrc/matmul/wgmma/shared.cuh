// Shared memory of wgmma/kernel.cuh, and this CTA's place in the grid.
#pragma once
#include "device/ptx/cluster.cuh"
#include "device/ptx/grid.cuh"
#include "device/ptx/warpgroup.cuh"
#include "device/warp.cuh"
#include "matmul/wgmma/arguments.cuh"

namespace xgemm::matmul::wgmma_detail {

template <WgmmaConfig kConfig>
struct Shared {
  static constexpr int kConsumerWarps = 4 * kConfig.consumers(), kStages = kConfig.stages;
  unsigned char* memory;
  unsigned char *slots = memory + swizzle_padding(memory), *staging = slots + kConfig.slots_bytes();
  int* inputs = reinterpret_cast<int*>(staging + kConsumerWarps * kConfig.staging_bytes());
  Pipeline<kStages> pipeline{reinterpret_cast<ptx::Barrier*>(reinterpret_cast<unsigned char*>(inputs) + kConfig.input_bytes())};
  ptx::Barrier* merged = pipeline.empty + kStages;  ///< the slots, which held a cluster's sums, may be loaded again
  Pipeline<1> filled{merged + 1};                   ///< `inputs`: filled by idle warps, released by consumer warps
  ptx::Barrier* arrived = merged + 3;               ///< the cluster's sums of this CTA's columns have arrived
  MeetingShare* share = reinterpret_cast<MeetingShare*>(merged + 4);

  __device__ __forceinline__ void init_barriers(bool multicast) const {
    pipeline.init(1, multicast ? 2 * kConsumerWarps : kConsumerWarps);
    ptx::barrier_init(merged, kConsumerWarps);
    ptx::barrier_init(arrived, 1);
    if constexpr (!kConfig.gated) filled.init(kConfig.fillers(), kConsumerWarps);
    ptx::fence_barrier_init();
  }
};

/// Clusters and the items of this CTA: first_item(), then every item_step() further.
template <WgmmaConfig kConfig>
struct Cta {
  const WgmmaArguments& g;
  const int cluster = kConfig.may_split() ? g.k.cluster_splits : 1;  ///< CTAs of a cluster that splits K
  const bool multicast = kConfig.may_multicast() && g.tiles.multicast != 0;
  const int rank = cluster == 1 ? -1 : static_cast<int>(ptx::cluster_rank());  ///< the split in such a cluster; -1: there is none

  __device__ __forceinline__ bool clustered() const { return cluster > 1 || multicast; }
  __device__ __forceinline__ int pair_rank() const { return multicast ? static_cast<int>(ptx::cluster_rank()) : 0; }
  /// Each role computes it: ptxas spills values that are computed before the roles branch.
  __device__ __forceinline__ int first_item() const {
    int cta;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(cta));
    return cta >> g.schedule.shift;
  }
  __device__ __forceinline__ int item_step() const { return static_cast<int>(g.schedule.at_a_time.divisor); }
  /// Each warp calls it once, before it touches global or another CTA's shared memory; loaders first locate their tile.
  __device__ __forceinline__ void start() const {
    ptx::grid_wait();
    if (clustered()) ptx::cluster_wait_thread();  // all CTAs of the cluster run: their shared memory may be written
  }
};

}  // namespace xgemm::matmul::wgmma_detail
