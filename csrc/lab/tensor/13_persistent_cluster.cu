// Step 13, persistent with clusters: as many blocks as SMs, each walking over tiles; two blocks of a cluster share the tile of B.
//
// Idea: (a) the producer runs ahead into the next tile while the consumers still store this one, so fetching never stops; (b) the
// two blocks of a cluster own tiles one above the other: each fetches its own A and half of B, and multicasts that half to both,
// which saves a third of the reads of L2; (c) tiles are walked in groups of rows, so that blocks at work at the same time share
// operands in L2. A slot is free when the consumers of both blocks have left it, since both producers write to it. Limit: storing
// from registers in pieces of 16 bytes; the sums of a tile are not overlapped with the next one's multiplications.
#include "device/ptx/cluster.cuh"
#include "lab/kernels.h"
#include "lab/tensor/hopper.cuh"

namespace xgemm::lab::tensor {
namespace step_13 {

constexpr int kBM = 128, kBN = 256, kStages = 4, kThreads = 3 * kWarpgroup, kCluster = 2;
struct Slot {
  Box a, b[2];
};
struct Shared {
  Slot slots[kStages];
  ptx::Barrier full[kStages], empty[kStages];
};

#ifdef XGEMM_LAB_HOPPER
/// Row and column of the `index`-th tile of a cluster (256 x 256): down groups of kGroup rows of tiles, then along.
struct TileAt {
  int row, col;
};
__device__ __forceinline__ TileAt tile_at(const Problem& p, int index) {
  constexpr int kGroup = 16;
  const int rows = p.m / (kCluster * kBM), cols = p.n / kBN, group = index / (kGroup * cols);
  const int height = min(kGroup, rows - group * kGroup), within = index - group * kGroup * cols;
  return {(group * kGroup + within % height) * kCluster * kBM, within / height * kBN};
}
#endif

__global__ void __launch_bounds__(kThreads) __cluster_dims__(kCluster, 1, 1)
    kernel([[maybe_unused]] const __grid_constant__ Problem p) {
#ifdef XGEMM_LAB_HOPPER
  extern __shared__ __align__(1024) unsigned char raw[];
  Shared& shared = *reinterpret_cast<Shared*>(raw);
  const int rank = static_cast<int>(ptx::cluster_rank()), group = threadIdx.x / kWarpgroup, steps = p.k / kBoxK;
  const int tiles = p.m / (kCluster * kBM) * (p.n / kBN);
  constexpr std::uint16_t kBoth = (1 << kCluster) - 1;
  const int first = blockIdx.x / kCluster, stride = gridDim.x / kCluster;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      ptx::barrier_init(&shared.full[i], 1);
      ptx::barrier_init(&shared.empty[i], 2 * kCluster);
    }
    ptx::fence_barrier_init();
  }
  ptx::cluster_sync();  // both blocks' barriers exist
  if (group == 0) {
    ptx::release_registers<40>();
    if (threadIdx.x == 0) {
      int count = 0;  // steps over all tiles: the ring goes on where the last tile left it
      for (int tile = first; tile < tiles; tile += stride) {
        const TileAt at = tile_at(p, tile);
        for (int step = 0; step < steps; ++step, ++count) {
          const int slot = count % kStages, lap = count / kStages;
          Slot& to = shared.slots[slot];
          ptx::barrier_wait(&shared.empty[slot], lap % 2 ^ 1);
          ptx::barrier_arrive_expect(&shared.full[slot], 3 * kBoxBytes);
          ptx::tma_load(to.a, &p.map_a, &shared.full[slot], step * kBoxK, at.row + rank * kBM, 0);
          ptx::tma_load_multicast(to.b[rank], &p.map_b, &shared.full[slot], step * kBoxK, at.col + rank * kBoxRows, 0, kBoth);
        }
      }
    }
  } else {
    ptx::acquire_registers<232>();
    const auto leave = [&](int slot) {
      if (threadIdx.x % kWarpgroup < kCluster) ptx::barrier_arrive(&shared.empty[slot], threadIdx.x % kWarpgroup);
    };
    int count = 0;
    for (int tile = first; tile < tiles; tile += stride) {
      const TileAt at = tile_at(p, tile);
      float sum[128];
      for (int step = 0; step < steps; ++step, ++count) {
        const int slot = count % kStages, lap = count / kStages;
        const Slot& from = shared.slots[slot];
        ptx::barrier_wait(&shared.full[slot], lap % 2);
        ptx::wgmma_fence();
        multiply(sum, from.a[(group - 1) * 64], from.b[0][0], step > 0);
        ptx::wgmma_commit();
        if (step > 0) {
          ptx::wgmma_wait<1>();
          leave((count - 1) % kStages);
        }
      }
      ptx::wgmma_wait<0>();
      leave((count - 1) % kStages);
      ptx::wgmma_pin(sum);
      store(p, at.row + rank * kBM + (group - 1) * 64, at.col, sum);
    }
  }
  ptx::cluster_sync();  // nobody leaves while the other may still write to him
#endif
}

const NameKernel named("tensor 13_persistent_cluster", kernel, kThreads, sizeof(Shared));

}  // namespace step_13

void persistent_cluster(const Problem& p, cudaStream_t stream) {
  using namespace step_13;
  constexpr int kBytes = static_cast<int>(sizeof(Shared));
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  int device = 0, sms = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  const int tiles = p.m / (kCluster * kBM) * (p.n / kBN);
  const int clusters = tiles < sms / kCluster ? tiles : sms / kCluster;
  kernel<<<clusters * kCluster, kThreads, kBytes, stream>>>(p);
}

}  // namespace xgemm::lab::tensor
