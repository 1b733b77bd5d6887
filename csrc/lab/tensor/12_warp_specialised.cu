// Step 12, warp-specialised: a producer warpgroup that only fetches, two consumers that only multiply, a ring of four tiles
// between them.
//
// Idea: nobody waits for what he does not need. The producer refills a slot as soon as both consumers have left it; a consumer
// starts on a slot as soon as its bytes have come. The tile is 128 x 256, so that a byte from shared memory feeds more
// multiply-adds, and setmaxnreg moves the producer's registers to the consumers, which hold 128 sums a thread. 192 KiB a block,
// one block an SM. Limit: while a block stores its tile nothing multiplies, and the last wave of blocks leaves SMs idle.
#include "lab/kernels.h"
#include "lab/tensor/hopper.cuh"

namespace xgemm::lab::tensor {
namespace step_12 {

constexpr int kBM = 128, kBN = 256, kStages = 4, kThreads = 3 * kWarpgroup;
struct Slot {
  Box a, b[2];
};
struct Shared {
  Slot slots[kStages];
  ptx::Barrier full[kStages], empty[kStages];
};

__global__ void __launch_bounds__(kThreads) kernel([[maybe_unused]] const __grid_constant__ Problem p) {
#ifdef XGEMM_LAB_HOPPER
  extern __shared__ __align__(1024) unsigned char raw[];
  Shared& shared = *reinterpret_cast<Shared*>(raw);
  const int row0 = blockIdx.y * kBM, col0 = blockIdx.x * kBN, group = threadIdx.x / kWarpgroup, steps = p.k / kBoxK;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      ptx::barrier_init(&shared.full[i], 1);
      ptx::barrier_init(&shared.empty[i], 2);
    }
    ptx::fence_barrier_init();
  }
  __syncthreads();
  if (group == 0) {
    ptx::release_registers<40>();
    if (threadIdx.x == 0)
      for (int step = 0; step < steps; ++step) {
        const int slot = step % kStages, lap = step / kStages;
        Slot& to = shared.slots[slot];
        ptx::barrier_wait(&shared.empty[slot], lap % 2 ^ 1);
        ptx::barrier_arrive_expect(&shared.full[slot], 3 * kBoxBytes);
        ptx::tma_load(to.a, &p.map_a, &shared.full[slot], step * kBoxK, row0, 0);
        for (int half = 0; half < 2; ++half)
          ptx::tma_load(to.b[half], &p.map_b, &shared.full[slot], step * kBoxK, col0 + half * kBoxRows, 0);
      }
  } else {
    ptx::acquire_registers<232>();
    float sum[128];
    for (int step = 0; step < steps; ++step) {
      const int slot = step % kStages, lap = step / kStages;
      const Slot& from = shared.slots[slot];
      ptx::barrier_wait(&shared.full[slot], lap % 2);
      ptx::wgmma_fence();
      multiply(sum, from.a[(group - 1) * 64], from.b[0][0], step > 0);
      ptx::wgmma_commit();
      if (step > 0) {  // the tensor cores go on with this step while the one before is handed back
        ptx::wgmma_wait<1>();
        if (threadIdx.x % kWarpgroup == 0) ptx::barrier_arrive(&shared.empty[(step - 1) % kStages]);
      }
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(sum);
    store(p, row0 + (group - 1) * 64, col0, sum);
  }
#endif
}

const NameKernel named("tensor 12_warp_specialised", kernel, kThreads, sizeof(Shared));

}  // namespace step_12

void warp_specialised(const Problem& p, cudaStream_t stream) {
  using namespace step_12;
  constexpr int kBytes = static_cast<int>(sizeof(Shared));
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  kernel<<<dim3(p.n / kBN, p.m / kBM), kThreads, kBytes, stream>>>(p);
}

}  // namespace xgemm::lab::tensor
