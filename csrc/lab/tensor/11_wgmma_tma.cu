// Step 11, wgmma and TMA: one thread fetches a tile, a warpgroup multiplies 64 x 128 x 16 an instruction straight from shared
// memory.
//
// Idea: both operands stay in shared memory, so registers hold sums only; a single TMA instruction moves 16 KiB and swizzles it
// as wgmma wants it; an mbarrier counts the bytes. Two warpgroups own a 128 x 128 tile. Limit: one buffer, so the tensor cores
// wait for each fetch and each fetch for the tensor cores; two blocks an SM hide a part of it.
#include "lab/tensor/hopper.cuh"

namespace xgemm::lab::tensor::step_11 {

constexpr int kThreads = 2 * kWarpgroup;
struct Shared {
  Box a, b;
  ptx::Barrier arrived;
};

__global__ void __launch_bounds__(kThreads) kernel([[maybe_unused]] const __grid_constant__ Problem p) {
#ifdef XGEMM_LAB_HOPPER
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& [a, b, arrived] = *reinterpret_cast<Shared*>(raw);
  const int row0 = blockIdx.y * kBoxRows, col0 = blockIdx.x * kBoxRows, group = threadIdx.x / kWarpgroup;
  if (threadIdx.x == 0) {
    ptx::barrier_init(&arrived, 1);
    ptx::fence_barrier_init();
  }
  __syncthreads();
  float sum[64];
  for (int k = 0; k < p.k; k += kBoxK) {
    if (threadIdx.x == 0) {
      ptx::barrier_arrive_expect(&arrived, 2 * kBoxBytes);
      ptx::tma_load(a, &p.map_a, &arrived, k, row0, 0);
      ptx::tma_load(b, &p.map_b, &arrived, k, col0, 0);
    }
    ptx::barrier_wait(&arrived, k / kBoxK % 2);
    ptx::wgmma_fence();
    multiply(sum, a[group * 64], b[0], k > 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    __syncthreads();  // both warpgroups have read the tile
  }
  ptx::wgmma_pin(sum);
  store(p, row0 + group * 64, col0, sum);
#endif
}

const Step named = step<kernel, kBoxRows, kBoxRows, kThreads, sizeof(Shared)>(11, "tensor 11_wgmma_tma");

}  // namespace xgemm::lab::tensor::step_11
