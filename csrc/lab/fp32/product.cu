// The products of the fp32 ladder: step 12's warp-specialised kernel with one or three wgmma a step, promoted or not. sm_90a.
//
// A slot of the ring holds hi and lo of 128 rows of A and of B (64 KiB, three slots). The two small products come first: they are
// about 2^-11 of the large one, so they lose least while the sum is small. Promoted: a step's sum starts at zero and is added to
// the total by the CUDA cores; a consumer then waits for its own step, and the other consumer keeps the tensor cores busy.
#include "device/launch.h"
#include "lab/fp32/fp32.h"
#include "lab/tensor/hopper.cuh"

namespace xgemm::lab::fp32 {

using tensor::kBoxBytes, tensor::kBoxK, tensor::kBoxRows, tensor::kWarpgroup;

constexpr int kStages = 3, kThreads = 3 * kWarpgroup;
using Box = tensor::BoxOf<__half>;
struct Slot {
  Box a_hi, b_hi, a_lo, b_lo;
};
using Ring = tensor::RingOf<Slot, kStages>;

enum class Sum { one_product, three_products, three_promoted };

template <Sum kSum>
__global__ void __launch_bounds__(kThreads) product_kernel([[maybe_unused]] const __grid_constant__ Problem p) {
#ifdef XGEMM_LAB_HOPPER
  constexpr bool kThree = kSum != Sum::one_product, kPromote = kSum == Sum::three_promoted;
  extern __shared__ __align__(1024) unsigned char raw[];
  Ring& ring = *reinterpret_cast<Ring*>(raw);
  const int row0 = blockIdx.y * kBoxRows, col0 = blockIdx.x * kBoxRows, group = threadIdx.x / kWarpgroup, steps = p.k / kBoxK;
  if (threadIdx.x == 0) tensor::init_ring(ring, 2);
  __syncthreads();
  if (group == 0) {
    ptx::release_registers<40>();
    if (threadIdx.x == 0)
      for (int step = 0; step < steps; ++step) {
        const int slot = step % kStages, lap = step / kStages;
        Slot& to = ring.slots[slot];
        ptx::Barrier* full = &ring.full[slot];
        ptx::barrier_wait(&ring.empty[slot], lap % 2 ^ 1);
        ptx::barrier_arrive_expect(full, (kThree ? 4 : 2) * kBoxBytes);
        ptx::tma_load(to.a_hi, &p.a.map_hi, full, step * kBoxK, row0, 0);
        ptx::tma_load(to.b_hi, &p.b.map_hi, full, step * kBoxK, col0, 0);
        if (kThree) {
          ptx::tma_load(to.a_lo, &p.a.map_lo, full, step * kBoxK, row0, 0);
          ptx::tma_load(to.b_lo, &p.b.map_lo, full, step * kBoxK, col0, 0);
        }
      }
  } else {
    ptx::acquire_registers<232>();
    const int rows = (group - 1) * 64;
    float sum[64], total[kPromote ? 64 : 1] = {};
    for (int step = 0; step < steps; ++step) {
      const int slot = step % kStages, lap = step / kStages;
      const Slot& from = ring.slots[slot];
      ptx::barrier_wait(&ring.full[slot], lap % 2);
      bool accumulate = !kPromote && step > 0;
      ptx::wgmma_fence();
      if (kThree) {
        tensor::multiply(sum, from.a_lo[rows], from.b_hi[0], accumulate);
        tensor::multiply(sum, from.a_hi[rows], from.b_lo[0], true);
        accumulate = true;
      }
      tensor::multiply(sum, from.a_hi[rows], from.b_hi[0], accumulate);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(sum);
      if (threadIdx.x % kWarpgroup == 0) ptx::barrier_arrive(&ring.empty[slot]);
      if constexpr (kPromote) {
#pragma unroll
        for (int i = 0; i < 64; ++i) total[i] += sum[i];
      }
    }
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < 16; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = row0 + rows + 16 * warp + lane / 4 + 8 * h, col = col0 + 8 * j + lane % 4 * 2, i = 4 * j + 2 * h;
        const int e = p.a.exponent[row];
        float2 y;
        y.x = ldexpf(kPromote ? total[kPromote ? i : 0] : sum[i], e + p.b.exponent[col]);
        y.y = ldexpf(kPromote ? total[kPromote ? i + 1 : 0] : sum[i + 1], e + p.b.exponent[col + 1]);
        *reinterpret_cast<float2*>(p.out + static_cast<std::int64_t>(row) * p.b.rows + col) = y;
      }
  }
#endif
}

template <Sum kSum>
Step step(int number, const char* name) {
  constexpr auto kKernel = product_kernel<kSum>;
  const auto launch = [](const Problem& p, cudaStream_t stream) {
    enqueue_with_shared<kKernel, sizeof(Ring)>(
        {.blocks = dim3(p.b.rows / kBoxRows, p.a.rows / kBoxRows), .threads = dim3(kThreads)}, stream, p);
  };
  return {{number}, name, kKernel, kThreads, launch, sizeof(Ring)};
}

const Step named_fp16 = step<Sum::one_product>(0, "fp32 fp16"), named_split = step<Sum::three_products>(1, "fp32 split"),
           named_promoted = step<Sum::three_promoted>(2, "fp32 promoted"),
           named_scaled = step<Sum::three_promoted>(3, "fp32 scaled");  // by its split pass

}  // namespace xgemm::lab::fp32
