// Step 11a, wgmma without TMA: step 10's copies (cp.async, three buffers) and step 11's products.
//
// Idea: it parts the two ideas of step 11. Against step 10 only the product changes: wgmma reads both operands from shared
// memory, no ldmatrix, no fragments in registers. Against step 11 only the fetch changes: all 256 threads compute addresses and
// issue 16 bytes each, where one thread issues 16 KiB; three buffers (96 KiB, two blocks an SM) hide what one cannot. wgmma reads
// through the asynchronous proxy, cp.async writes through the generic one: a fence between them, before the barrier. Limit: 2,048
// copies a step go through the threads that also issue the products, and both warpgroups meet at a barrier each step.
#include "lab/tensor/hopper.cuh"
#include "lab/tensor/swizzled_tile.cuh"

namespace xgemm::lab::tensor::step_11a {

constexpr int kStages = 3, kThreads = 2 * kWarpgroup;

__global__ void __launch_bounds__(kThreads, 2) kernel([[maybe_unused]] const __grid_constant__ Problem p) {
#ifdef XGEMM_LAB_HOPPER
  extern __shared__ __align__(1024) unsigned char shared[];
  Tile *const tiles_a = reinterpret_cast<Tile*>(shared), *const tiles_b = tiles_a + kStages;
  const int row0 = blockIdx.y * kBoxRows, col0 = blockIdx.x * kBoxRows, group = threadIdx.x / kWarpgroup, steps = p.k / kBoxK;
  const __nv_bfloat16 *a = p.a + static_cast<std::int64_t>(row0) * p.k, *b = p.b + static_cast<std::int64_t>(col0) * p.k;
  const auto fetch = [&](int step) {
    if (step < steps) {
      load<kThreads>(tiles_a[step % kStages], a + step * kBoxK, p.k);
      load<kThreads>(tiles_b[step % kStages], b + step * kBoxK, p.k);
    }
    cp_async_commit();  // an empty group at the end keeps the count of groups
  };
  float sum[64];
  for (int step = 0; step < kStages - 1; ++step) fetch(step);
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<kStages - 2>();
    ptx::fence_async_shared();
    __syncthreads();  // this tile is complete, and both warpgroups' products have read the one before
    ptx::wgmma_fence();
    multiply(sum, tiles_a[step % kStages][group * 64], tiles_b[step % kStages][0], step > 0);
    ptx::wgmma_commit();
    fetch(step + kStages - 1);
    ptx::wgmma_wait<0>();
  }
  ptx::wgmma_pin(sum);
  store(p, row0 + group * 64, col0, sum);
#endif
}

const Step named = step<kernel, kBoxRows, kBoxRows, kThreads, 2 * kStages * sizeof(Tile)>(14, "tensor 11a_wgmma_cp_async");

}  // namespace xgemm::lab::tensor::step_11a
