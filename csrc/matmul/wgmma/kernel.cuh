// Matrix product on Hopper's tensor cores (sm_90a): half-precision operands, and fp32 operands that fp16_split/split.cuh has
// turned into one or two scaled fp16 parts; out = epilogue(A B) as epilogue/apply.cuh says. One persistent, warp-specialised
// kernel: warpgroup 0 loads by TMA (producer.cuh), the others multiply 64 rows each by wgmma (consumer.cuh), and C is stored
// while the next tile is computed (epilogue/store_*.cuh, split_k.cuh). Half precision may compute C^T, so that its tiles have any
// number of C's rows. Arguments: wgmma/arguments.cuh; design: docs/matmul.md.
//
//   Operands  row- or column-major each; base and strides multiples of 16 bytes (TMA). Edges of any size: TMA reads zeros out of
//             bounds. Batches are the tensor maps' third dim (broadcast: step 0).
//   Order     an element's products are added in an order that depends on K, tile_k, parts, chunk_blocks and splits alone: the
//             tile, the place in it and multicast do not change its bits.
//
// Floors: 2 M N K flop (parts = 2: three times) over 4096 a cycle and SM; per k-block and CTA, shared memory receives the
// slot's bytes from TMA and supplies 64 tile_k (A) + tile_n tile_k (B) elements to each consumer, at 128 bytes a cycle. Few
// rows: B's bytes.
#pragma once
#include "matmul/wgmma/consumer.cuh"
#include "matmul/wgmma/producer.cuh"

namespace xgemm::matmul {

template <class Element, class Out, class Config>
__global__ void __launch_bounds__(Config::kValue.threads(), 1) wgmma_gemm(const __grid_constant__ WgmmaArguments g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using namespace wgmma_detail;
  constexpr WgmmaConfig kConfig = Config::kValue;
  static_assert(kConfig.fits());
  extern __shared__ unsigned char shared_memory[];
  const Shared<Config> shared(shared_memory);
  const Cta<Config> cta(g);
  const int warpgroup = warp_uniform(static_cast<int>(threadIdx.x) / 128);
  // The prologue is part of every launch, and a single warp issues one instruction in five cycles: one warp initialises the
  // barriers, another prefetches the tensor maps.
  if (threadIdx.x == 32) shared.init_barriers(cta.multicast);
  if (threadIdx.x == 64) {
    ptx::prefetch_tensor_map(&g.a);
    ptx::prefetch_tensor_map(&g.b);
    if constexpr (kConfig.gated) ptx::prefetch_tensor_map(&g.gate.up);
    if (g.boxes && !g.ragged) ptx::prefetch_tensor_map(&g.out);
    if (kConfig.may_fall_back() && g.fallback.lines) asm volatile("prefetch.global.L2 [%0];" ::"l"(g.fallback.lines));
  }
  __syncthreads();
  ptx::grid_release();
  if constexpr (kConfig.may_fall_back()) {
    ptx::grid_wait();
    if (falls_back(g)) return;
  }
  if (cta.clustered()) ptx::cluster_arrive_thread();  // as early as possible, because each CTA waits for all
  if (warpgroup == 0) {
    if constexpr (kConfig.consumers() == 2) ptx::release_registers<24>();
    Producer<Config>{g, shared, cta}.template run<Out>();
  } else {
    if constexpr (kConfig.consumers() == 2) ptx::acquire_registers<240>();
    Consumer<Element, Out, Config>(g, shared, cta, warpgroup - 1).run();
  }
#endif
}

}  // namespace xgemm::matmul
