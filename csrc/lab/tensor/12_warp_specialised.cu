// Step 12, warp-specialised: a producer warpgroup that only fetches, two consumers that only multiply, a ring of four tiles
// between them.
//
// Idea: nobody waits for what he does not need. The producer refills a slot as soon as both consumers have left it; a consumer
// starts on a slot as soon as its bytes have come. The tile is 128 x 256, so that a byte from shared memory feeds more
// multiply-adds, and setmaxnreg moves the producer's registers to the consumers, which hold 128 sums a thread. 192 KiB a block,
// one block an SM. Limit: while a block stores its tile nothing multiplies, and the last wave of blocks leaves SMs idle.
#include "lab/tensor/hopper.cuh"

namespace xgemm::lab::tensor::step_12 {

__global__ void __launch_bounds__(kRingThreads) kernel([[maybe_unused]] const __grid_constant__ Problem p) {
#ifdef XGEMM_LAB_HOPPER
  extern __shared__ __align__(1024) unsigned char raw[];
  Ring& ring = *reinterpret_cast<Ring*>(raw);
  const int row0 = blockIdx.y * kRingM, col0 = blockIdx.x * kRingN, group = threadIdx.x / kWarpgroup, steps = p.k / kBoxK;
  if (threadIdx.x == 0) init_ring(ring, 2);
  __syncthreads();
  if (group == 0) {
    ptx::release_registers<40>();
    if (threadIdx.x == 0)
      for (int step = 0; step < steps; ++step) {
        const int slot = step % kRingSlots, lap = step / kRingSlots;
        Slot& to = ring.slots[slot];
        ptx::barrier_wait(&ring.empty[slot], lap % 2 ^ 1);
        ptx::barrier_arrive_expect(&ring.full[slot], 3 * kBoxBytes);
        ptx::tma_load(to.a, &p.map_a, &ring.full[slot], step * kBoxK, row0, 0);
        for (int half = 0; half < 2; ++half)
          ptx::tma_load(to.b[half], &p.map_b, &ring.full[slot], step * kBoxK, col0 + half * kBoxRows, 0);
      }
  } else {
    ptx::acquire_registers<232>();
    float sum[128];
    for (int step = 0; step < steps; ++step) {
      const int slot = step % kRingSlots, lap = step / kRingSlots;
      const Slot& from = ring.slots[slot];
      ptx::barrier_wait(&ring.full[slot], lap % 2);
      ptx::wgmma_fence();
      multiply(sum, from.a[(group - 1) * 64], from.b[0][0], step > 0);
      ptx::wgmma_commit();
      if (step > 0) {  // the tensor cores go on with this step while the one before is handed back
        ptx::wgmma_wait<1>();
        if (threadIdx.x % kWarpgroup == 0) ptx::barrier_arrive(&ring.empty[(step - 1) % kRingSlots]);
      }
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(sum);
    store(p, row0 + (group - 1) * 64, col0, sum);
  }
#endif
}

const Step named = step<kernel, kRingM, kRingN, kRingThreads, sizeof(Ring)>(12, "tensor 12_warp_specialised");

}  // namespace xgemm::lab::tensor::step_12
