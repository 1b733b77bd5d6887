// bf16x3: fp32 product on Hopper's tensor cores (sm_90a) in one launch, out = epilogue(A B) as epilogue/apply.cuh says. Operands
// are split into three bf16 parts on the way to the tensor cores: no pass over them, no scaling, no copy in memory.
//
//   Operands  fp32, any strides. TMA loads B where base and strides are multiples of 16 bytes. Sizes < 2^31.
//   Parts     x = hi + mid + lo (parts.cuh). Six products; what is dropped is under 2^-24 of |A||B|. Inf and NaN as in fp32.
//   Roles     Two warpgroups load B and split A (producer.cuh); two split B in registers and multiply (consumer.cuh). The
//             fallback computes what fp16 parts cannot represent (fallback.cuh).
//   Order     of additions: scheduler.cuh. It depends on M, and is the same in every run.
//
// Floors: 6 products of 2 M N K flop at 4096 per cycle and SM; bytes of A, B and C once. Design: docs/matmul.md.
#pragma once
#include "device/ptx/grid.cuh"
#include "matmul/bf16x3/consumer.cuh"
#include "matmul/bf16x3/producer.cuh"

namespace xgemm::matmul {

namespace bf16x3 {

template <class Config>
__device__ __forceinline__ void run(const Bf16x3Arguments& g) {
  const bool tma = g.tma || false;  // "|| false", here and elsewhere: else ptxas spills two registers of bf16x3_64x128
  extern __shared__ unsigned char shared_memory[];
  const Shared<Config> shared(shared_memory);
  if (threadIdx.x == 0) {
    shared.pipeline_b.init(tma ? 1 : kProducers, tma ? kConsumerWarps : kConsumerWarps * 32);
    shared.pipeline_a.init(kProducerWarps, kConsumerWarps);
    ptx::fence_barrier_init();
    if (tma) ptx::prefetch_tensor_map(&g.b);
  }
  __syncthreads();
  ptx::grid_wait();
  ptx::grid_release();
  if constexpr (Config::kValue.fallback)
    if (!list_tiles<Config>(g, shared.fallback)) return;
  if (warp_of_role() < kProducerWarps) {
    ptx::release_registers<kProducerRegisters>();
    produce<Config>(g, shared);
  } else {
    ptx::acquire_registers<kConsumerRegisters>();
    Consumer<Config>(g, shared).run();
  }
}

}  // namespace bf16x3

template <class Config>
__global__ void __launch_bounds__(32 * bf16x3::kWarps, 1) bf16x3_gemm(const __grid_constant__ Bf16x3Arguments g) {
  static_assert(!Config::kValue.fallback);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  bf16x3::run<Config>(g);
#endif
}

/// Computes the elements that a product in fp16 parts leaves (fallback.cuh).
template <class Config>
__global__ void __launch_bounds__(32 * bf16x3::kWarps, 1) bf16x3_fallback(const __grid_constant__ Bf16x3Arguments g) {
  static_assert(Config::kValue.fallback);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  bf16x3::run<Config>(g);
#endif
}

}  // namespace xgemm::matmul
