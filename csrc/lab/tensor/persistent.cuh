// The kernel of steps 13 and 13a; `Epilogue` is how a consumer's 64 x 256 sums leave, and what it keeps in shared memory. sm_90a.
#pragma once
#include "device/ptx/cluster.cuh"
#include "lab/tensor/hopper.cuh"

namespace xgemm::lab::tensor {

inline constexpr int kCluster = 2;

template <class Epilogue>
struct PersistentShared {
  Ring ring;
  alignas(1024) Epilogue epilogue;
};

#ifdef XGEMM_LAB_HOPPER
/// Row and column of the `index`-th tile of a cluster (256 x 256): down groups of kGroup rows of tiles, then along.
struct TileAt {
  int row, col;
};
__device__ __forceinline__ TileAt tile_at(const Problem& p, int index) {
  constexpr int kGroup = 16;
  const int rows = p.m / (kCluster * kRingM), cols = p.n / kRingN, group = index / (kGroup * cols);
  const int height = min(kGroup, rows - group * kGroup), within = index - group * kGroup * cols;
  return {(group * kGroup + within % height) * kCluster * kRingM, within / height * kRingN};
}
#endif

template <class Epilogue>
__global__ void __launch_bounds__(kRingThreads) persistent_kernel([[maybe_unused]] const __grid_constant__ Problem p) {
#ifdef XGEMM_LAB_HOPPER
  extern __shared__ __align__(1024) unsigned char raw[];
  PersistentShared<Epilogue>& shared = *reinterpret_cast<PersistentShared<Epilogue>*>(raw);
  Ring& ring = shared.ring;
  const int rank = static_cast<int>(ptx::cluster_rank()), group = threadIdx.x / kWarpgroup, steps = p.k / kBoxK;
  const int tiles = p.m / (kCluster * kRingM) * (p.n / kRingN);
  constexpr std::uint16_t kBoth = (1 << kCluster) - 1;
  const int first = blockIdx.x / kCluster, stride = gridDim.x / kCluster;
  if (threadIdx.x == 0) init_ring(ring, 2 * kCluster);
  ptx::cluster_sync();  // both blocks' barriers exist
  if (group == 0) {
    ptx::release_registers<40>();
    if (threadIdx.x == 0) {
      int count = 0;  // steps over all tiles: the ring goes on where the last tile left it
      for (int tile = first; tile < tiles; tile += stride) {
        const TileAt at = tile_at(p, tile);
        for (int step = 0; step < steps; ++step, ++count) {
          const int slot = count % kRingSlots, lap = count / kRingSlots;
          Slot& to = ring.slots[slot];
          ptx::barrier_wait(&ring.empty[slot], lap % 2 ^ 1);
          ptx::barrier_arrive_expect(&ring.full[slot], 3 * kBoxBytes);
          ptx::tma_load(to.a, &p.map_a, &ring.full[slot], step * kBoxK, at.row + rank * kRingM, 0);
          ptx::tma_load_multicast(to.b[rank], &p.map_b, &ring.full[slot], step * kBoxK, at.col + rank * kBoxRows, 0, kBoth);
        }
      }
    }
  } else {
    ptx::acquire_registers<232>();
    const auto leave = [&](int slot) {
      if (threadIdx.x % kWarpgroup < kCluster) ptx::barrier_arrive(&ring.empty[slot], threadIdx.x % kWarpgroup);
    };
    int count = 0;
    for (int tile = first; tile < tiles; tile += stride) {
      const TileAt at = tile_at(p, tile);
      float sum[128];
      for (int step = 0; step < steps; ++step, ++count) {
        const int slot = count % kRingSlots, lap = count / kRingSlots;
        const Slot& from = ring.slots[slot];
        ptx::barrier_wait(&ring.full[slot], lap % 2);
        ptx::wgmma_fence();
        multiply(sum, from.a[(group - 1) * 64], from.b[0][0], step > 0);
        ptx::wgmma_commit();
        if (step > 0) {
          ptx::wgmma_wait<1>();
          leave((count - 1) % kRingSlots);
        }
      }
      ptx::wgmma_wait<0>();
      leave((count - 1) % kRingSlots);
      ptx::wgmma_pin(sum);
      shared.epilogue.store(p, group - 1, at.row + rank * kRingM + (group - 1) * 64, at.col, sum);
    }
    shared.epilogue.finish();
  }
  ptx::cluster_sync();  // nobody leaves while the other may still write to him
#endif
}

template <class Epilogue>
void launch_persistent(const Problem& p, cudaStream_t stream) {
  const int tiles = p.m / (kCluster * kRingM) * (p.n / kRingN);
  const int clusters = tiles < p.sm_count / kCluster ? tiles : p.sm_count / kCluster;
  enqueue_with_shared<persistent_kernel<Epilogue>, static_cast<int>(sizeof(PersistentShared<Epilogue>))>(
      {.blocks = dim3(clusters * kCluster), .threads = dim3(kRingThreads), .cluster = kCluster}, stream, p);
}

}  // namespace xgemm::lab::tensor
