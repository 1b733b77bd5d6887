// Shared memory of wgmma/kernel.cuh, a CTA's place in the grid, and which tiles and splits of K it computes in which order.
#pragma once
#include "device/ptx/cluster.cuh"
#include "device/ptx/grid.cuh"
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
  __device__ __forceinline__ int first_item() const { return block_index() >> g.schedule.shift; }
  __device__ __forceinline__ int item_step() const { return static_cast<int>(g.schedule.at_a_time.divisor); }
  /// Each warp calls it once, before it touches global or another CTA's shared memory; loaders first locate their tile.
  __device__ __forceinline__ void start() const {
    ptx::grid_wait();
    if (clustered()) ptx::cluster_wait_thread();  // all CTAs of the cluster run: their shared memory may be written
  }
};

struct Tile {
  int row, column, batch;  ///< first row and column of C
};

/// What a CTA does at a time: k-blocks [begin, end) of a tile.
struct Item {
  int tile, split, begin, end;
};

/// Item `index`. `rank`: this CTA's in a cluster that splits K, which is its split; -1: none.
template <WgmmaConfig kConfig>
__device__ __forceinline__ Item item_at(const WgmmaArguments& g, int index, int rank, int blocks) {
  Item item{index, rank, 0, blocks};
  if (kConfig.may_split_memory() && g.memory_splits > 1) {
    item.tile = index / g.memory_splits;
    item.split = index - item.tile * g.memory_splits;
  }
  if (item.split >= 0) {
    item.begin = min(blocks, item.split * g.k.split_blocks);
    item.end = min(blocks, item.begin + g.k.split_blocks);
  } else {
    item.split = 0;
  }
  return item;
}

/// Tile `index`: column by column inside groups of `group` rows of tiles, so that the operands of the tiles in flight stay in
/// L2. `rank`: this CTA's in a multicast pair. The last tiles of a K-major operand begin at last_row or last_column and overlap
/// their neighbours, because TMA is slower for lines out of bounds. Elements that are computed twice have the same bits.
template <WgmmaConfig kConfig>
__device__ __forceinline__ Tile locate(const WgmmaArguments& g, int index, int rank = 0) {
  const auto& s = g.schedule;
  const int batch = s.per_batch.divide(index), within = index - batch * static_cast<int>(s.per_batch.divisor);
  const int group = s.per_group.divide(within), in_group = within - group * static_cast<int>(s.per_group.divisor);
  const bool whole = (group + 1) * kConfig.group <= g.tiles.rows;
  const int height = whole ? kConfig.group : static_cast<int>(s.last_rows.divisor);
  const int column = whole ? in_group / kConfig.group : s.last_rows.divide(in_group);
  int row = group * kConfig.group + (in_group - column * height);
  if (kConfig.may_multicast() && g.tiles.multicast) row = 2 * row + rank;
  return {min(row * kConfig.tile_m, g.tiles.last_row), min(column * g.tiles.width, g.tiles.last_column), batch};
}

/// Called by a warp: prefetches to L2 the first bytes of b's lines that this CTA reads. No thread sees the data, so this need
/// not wait for the previous kernel.
__device__ __forceinline__ void prefetch_b(const WgmmaArguments& g, const Item& item, const Tile& tile) {
  const int begin = item.begin * kWgmmaTileK, bytes = min(g.prefetch.bytes, 2 * (static_cast<int>(g.problem.k) - begin)) & ~15;
  const int lines = min(g.tiles.width, static_cast<int>(g.problem.n) - tile.column);
  if (bytes <= 0) return;
  for (int line = static_cast<int>(threadIdx.x) % 32; line < lines; line += 32)
    asm volatile(
        "cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(g.prefetch.b + (tile.column + line) * g.prefetch.step + 2 * begin),
        "r"(bytes)
        : "memory");
}

}  // namespace xgemm::matmul::wgmma_detail
