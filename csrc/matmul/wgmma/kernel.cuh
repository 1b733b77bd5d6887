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
#include <algorithm>
#include <type_traits>

#include "matmul/wgmma/consumer.cuh"
#include "matmul/wgmma/producer.cuh"

namespace xgemm::matmul {

/// The instantiation for a tile and a kind of operands (parts: as in WgmmaPlan). Slots fill shared memory beside the staging of
/// C. Groups keep the operands of a wave of 132 tiles in L2: 16 rows of tiles by 8 wide ones, 12 by 11 narrower ones.
constexpr WgmmaConfig wgmma_config(WgmmaTile tile, int parts, bool k_major_a, bool k_major_b, bool gated) {
  const TileInfo& t = info(tile);
  WgmmaConfig config{.tile_m = t.m,
                     .tile_n = t.n,
                     .blocks = parts == 2 ? 1 : t.k / kWgmmaTileK,
                     .stages = 0,
                     .k_major_a = k_major_a,
                     .k_major_b = k_major_b,
                     .group = t.n == 256 ? 16 : 12,
                     .parts = std::max(1, parts),
                     .scaled = parts > 0,
                     .gated = gated};
  config.stages = std::min(8, (t.m == 64 ? 208 : 192) * 1024 / config.stage_bytes());
  return config;
}
template <class Element, int kParts>
using WgmmaOut = std::conditional_t<kParts == 0, Element, float>;

template <class Element, WgmmaTile kTile, int kParts, bool kKMajorA, bool kKMajorB, bool kGated>
__global__ void __launch_bounds__(wgmma_config(kTile, kParts, kKMajorA, kKMajorB, kGated).threads(), 1)
    wgmma_gemm(const __grid_constant__ WgmmaArguments g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using namespace wgmma_detail;
  using Out = WgmmaOut<Element, kParts>;
  constexpr WgmmaConfig kConfig = wgmma_config(kTile, kParts, kKMajorA, kKMajorB, kGated);
  static_assert(kConfig.fits());
  extern __shared__ unsigned char shared_memory[];
  const Shared<kConfig> shared{shared_memory};
  const Cta<kConfig> cta{g};
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
    Producer<kConfig>{g, shared, cta}.template run<Out>();
  } else {
    if constexpr (kConfig.consumers() == 2) ptx::acquire_registers<240>();
    Consumer<Element, Out, kConfig>(g, shared, cta, warpgroup - 1).run();
  }
#endif
}

}  // namespace xgemm::matmul
