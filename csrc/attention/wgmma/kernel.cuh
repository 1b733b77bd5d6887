// Attention on Hopper's tensor cores (sm_90a): half or bf16.
//
// Computes  out = softmax(scale Q K^T + mask) V  and, if asked, the natural log-sum-exp of each row; causal with any
// shift, windows, masks, soft capping, sinks.
//   Operands   query (outer, inner, group, Sq, D), key and value (outer, inner, Sk, D or Dv), columns adjacent, other strides
//              multiples of 16 bytes; output contiguous, Dv a multiple of 8. D and Dv up to kTile's, zeros beyond; scale > 0.
//   Roles      persistent CTAs; warpgroup 0 loads (producer.cuh), each other one owns 64 rows (consumer.cuh): scores, weights and
//              outputs stay in registers, the weights as wgmma's A operand.
//   Order      a row's sums are added in an order that depends on Sk, D, Dv, dtype, the kind of mask and plan.cpp's splits of
//              the keys (so on batch and GPU): tiles of kTile.keys from key 0 on, from the last to the first of a split; tiles
//              that a row does not see leave its state unchanged; splits are merged in order (merge.cuh).
//   Floor      2 Sq Sk (D + Dv) flop at 4096 a cycle and SM; Sq Sk exponentials at 16; Q, K, V and O once through memory.
#pragma once
#include "attention/wgmma/consumer.cuh"
#include "attention/wgmma/producer.cuh"
#include "device/ptx/grid.cuh"

namespace xgemm::attention {

template <class Element, int kIndex, Masking kMasking>
__global__ void __launch_bounds__(kWgmmaTiles[kIndex].threads(), kWgmmaTiles[kIndex].ctas)
    attention_wgmma(const __grid_constant__ ArgumentsOf<TileArguments, kMasking> g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shared<kIndex, kMasking>;
  static_assert(S::kTile.registers_suffice(kMasking));
  extern __shared__ __align__(1024) unsigned char attention_memory[];  // aligned to kSwizzlePattern: no room for padding
  const S shared(attention_memory);
  if (threadIdx.x == 32) shared.init_barriers();
  if (threadIdx.x == 64)
    for (const CUtensorMap* map : {&g.query, &g.key, &g.value, &g.output}) ptx::prefetch_tensor_map(map);
  if constexpr (S::kMaskSlots > 0)
    if (threadIdx.x == 96) ptx::prefetch_tensor_map(&g.mask_map);
  __syncthreads();
  ptx::grid_release();
  ptx::grid_wait();

  const int warpgroup = warp_uniform(static_cast<int>(threadIdx.x) / 128);
  if (warpgroup == 0) {
    if constexpr (S::kTile.lends_registers()) ptx::release_registers<S::kTile.producer_registers(kMasking)>();
    if (threadIdx.x < 32) produce<kIndex, kMasking>(g, shared);
  } else {
    if constexpr (S::kTile.lends_registers()) ptx::acquire_registers<S::kTile.consumer_registers(kMasking)>();
    Consumer<Element, kIndex, kMasking>(g, shared, warpgroup - 1).run();
  }
#endif
}

}  // namespace xgemm::attention
