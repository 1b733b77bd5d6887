// fp32 attention on Hopper's tensor cores (sm_90a), by scaled fp16 parts of each operand (split.cuh): two parts and three
// products for fp32's accuracy, or one for TF32's.
//
// Computes  out = softmax(scale Q K^T + mask) V  and, if asked, the natural log-sum-exp of each row; causal, masks.
//   Operands   the parts and scales of split.cuh; output contiguous fp32. D and Dv up to kTile's; scale > 0.
//   Roles      persistent CTAs; one warp of warpgroup 0 loads (producer.cuh), one finds the key heads that the parts cannot
//              represent, whose output is undefined here. Each other warpgroup owns 64 rows (consumer.cuh).
//   Order      as attention/wgmma/kernel.cuh: tiles of kTile.keys from the last to the first.
//   Floor      6 (one part: 2) Sq Sk (D + Dv) flop at 4096 a cycle and SM: 330 (989) TFLOP/s of fp32 work at 1.83 GHz; parts
//              once through memory.
#include "attention/fp16_split/consumer.cuh"
#include "attention/fp16_split/launch.h"
#include "attention/fp16_split/producer.cuh"
#include "attention/fp16_split/split.cuh"
#include "device/launch.h"

namespace xgemm::attention {

template <int kIndex, Masking kMasking>
__global__ void __launch_bounds__(kSplitTiles[kIndex].threads(), 1)
    attention_fp16_split(const __grid_constant__ SplitArguments g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = SplitShared<kIndex>;
  static_assert(S::kTile.registers_suffice(Masking::edges));
  extern __shared__ unsigned char memory[];
  const S shared(memory);
  if (threadIdx.x == 32) shared.init_barriers();
  if (threadIdx.x == 64)
    for (const CUtensorMap* map : {&g.query, &g.key, &g.value}) ptx::prefetch_tensor_map(map);
  __syncthreads();
  ptx::grid_release();
  ptx::grid_wait();

  const int warpgroup = warp_uniform(static_cast<int>(threadIdx.x) / 128);
  if (warpgroup == 0) {
    ptx::release_registers<S::kTile.producer_registers(Masking::edges)>();
    if (threadIdx.x < 32)
      produce_parts<kIndex, kMasking>(g, shared);
    else if (threadIdx.x < 64)
      judge_heads(g);
  } else {
    ptx::acquire_registers<S::kTile.consumer_registers(Masking::edges)>();
    SplitConsumer<kIndex, kMasking>(g, shared).run();
  }
#endif
}

namespace {

template <Masking kMasking>
void launch_tile(int tile, const SplitArguments& g, int ctas, cudaStream_t stream) {
  with_index<kSplitTiles.size()>(tile, [&](auto index) {
    constexpr Tile kTile = kSplitTiles[index];
    if constexpr (kTile.serves(kMasking)) {
      const Grid grid{.blocks = static_cast<unsigned>(ctas), .threads = kTile.threads(), .early = true};
      enqueue_with_shared<attention_fp16_split<index, kMasking>, SplitShared<index>::kBytes>(grid, stream, g);
    }
  });
}

}  // namespace

void launch_split_tile(int tile, Masking masking, const SplitArguments& g, int ctas, cudaStream_t stream) {
  switch (masking) {
    case Masking::edges: return launch_tile<Masking::edges>(tile, g, ctas, stream);
    case Masking::boolean: return launch_tile<Masking::boolean>(tile, g, ctas, stream);
    case Masking::additive: return launch_tile<Masking::additive>(tile, g, ctas, stream);
    case Masking::additive_tma:
    case Masking::sequences: return;  // half types only
  }
}

}  // namespace xgemm::attention
