// fp32 product in tf32 on Hopper's tensor cores (sm_90a) in one launch: out = epilogue(A B) as epilogue/apply.cuh says. TMA
// rounds every number to tf32 (10 bits, to nearest even) on its way to shared memory. Design: docs/matmul.md.
//
//   Operands  x and y: rows of A and columns of B, or (`swapped`) columns of B and rows of A; then the tensor cores compute
//             C^T. y is contiguous along k; x goes through registers if it is not. Base and strides are multiples of 16 bytes,
//             sizes under 2^31.
//   Roles     One thread loads (TMA). Each warpgroup multiplies 64 lines of x by the tile's lines of y.
//   Order     k-blocks, then splits of K (split_k.cuh): it depends on the problem and the GPU.
//   Edges     A K-major operand's edge tiles begin earlier and overlap the tiles before them; both compute the same bits.
//   Range     fp32's, Inf and NaN as in torch; numbers within 2^-12 of fp32's largest are rounded to Inf, as in torch's TF32.
//
// Floors: 2 M N K flop at 2048 per cycle and SM; per k-block of 32 and CTA, shared memory receives 128 (kX + kY) bytes from TMA
// and supplies 128 (64 + kY) to each warpgroup, at 128 bytes per cycle; bytes of A, B and C once.
#pragma once
#include "device/ptx/warpgroup.cuh"
#include "device/ptx/wgmma.cuh"
#include "matmul/tf32/split_k.cuh"
#include "matmul/tf32/store.cuh"

namespace xgemm::matmul {

template <class Config>
__global__ void __launch_bounds__(Config::kValue.threads(), 1) tf32_gemm(const __grid_constant__ Tf32Arguments g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using namespace tf32_detail;
  constexpr Tf32Config kConfig = Config::kValue;
  using Memory = Shared<Config>;
  constexpr int kX = kConfig.x(), kY = kConfig.y(), kBlocks = kConfig.blocks(), kSlots = Memory::kSlots, kDepth = Memory::kDepth;
  constexpr int kSums = kY / 2, kSteps = kDepth / 8, kConsumerWarps = Memory::kWarps;

  extern __shared__ unsigned char shared_memory[];
  unsigned char* const slots = shared_memory + swizzle_padding(shared_memory);
  float* const stages = reinterpret_cast<float*>(slots + kSlots * Memory::kSlotBytes);
  const Pipeline<kSlots> pipeline{reinterpret_cast<ptx::Barrier*>(stages + Memory::kWarps * Memory::kStage)};
  unsigned* const flags = reinterpret_cast<unsigned*>(pipeline.empty + kSlots);
  const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32), lane = static_cast<int>(threadIdx.x) % 32;
  begin(g, pipeline, Memory::kWarps);

  PipelineState<kSlots> state;
  if (warp >= kConsumerWarps) {
    if constexpr (kConfig.lends()) ptx::release_registers<24>();
    if (warp > kConsumerWarps || !ptx::elect_one()) return;
    for (unsigned index = blockIdx.x; index < g.items; index += gridDim.x) {
      const Item<Config> at(g, index);
      const int batch_x = at.batch * g.batch_step_x, batch_y = at.batch * g.batch_step_y;
      for (int block = at.block; block < at.end; ++block, state.advance()) {
        const int k = block * kDepth;
        unsigned char* const target = slots + state.slot * Memory::kSlotBytes;
        ptx::Barrier* const landed = pipeline.acquire(state);
        ptx::barrier_arrive_expect(landed, static_cast<unsigned>(g.slot_bytes));
        if constexpr (kConfig.k_major_x) {
#pragma unroll
          for (int i = 0; i < kBlocks; ++i) ptx::tma_load(target + i * kX * 128, &g.x, landed, k + kTf32TileK * i, at.x, batch_x);
        } else {
#pragma unroll
          for (int i = 0; i < kX / 32; ++i) ptx::tma_load(target + i * kDepth * 128, &g.x, landed, at.x + 32 * i, k, batch_x);
        }
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
          ptx::tma_load(target + Memory::kBytesX + i * kY * 128, &g.y, landed, k + kTf32TileK * i, at.y, batch_y);
      }
    }
    return;
  }

  if constexpr (kConfig.lends()) ptx::acquire_registers<240>();
  using Layout = ptx::OperandLayout<true, 128, 0>;
  const int warpgroup = warp / 4;
  const std::uint64_t base_y = Layout::descriptor(ptx::shared_address(slots) + Memory::kBytesX);
  const std::uint64_t base_x = Layout::descriptor(ptx::shared_address(slots) + warpgroup * 64 * 128);
  // MN-major x: offset in the slot of the thread's pair of lines at its first k, l % 4.
  const std::uint32_t first_at = [&] {
    const Lines<Config> at;
    const int line = at.first() % 32;
    return static_cast<std::uint32_t>((warpgroup * 2 + at.first() / 32) * kDepth * 128 + at.quad * 128 +
                                      ((line / 4) ^ at.quad) * 16 + line % 4 * 4);
  }();
  const auto release = [&](int slot) {
    __syncwarp();
    if (lane == 0) pipeline.release(slot);
  };
  for (unsigned index = blockIdx.x; index < g.items; index += gridDim.x) {
    const Item<Config> at(g, index);
    float sums[kSums];
    int previous = 0;
    for (int block = at.block; block < at.end; ++block, state.advance()) {
      const std::uint64_t offset = static_cast<unsigned>(state.slot * (Memory::kSlotBytes / 16));
      const auto at_y = [&](int step) { return base_y + offset + (step / 4 * kY * 128 + step % 4 * 32) / 16; };
      pipeline.wait(state);
      if constexpr (kConfig.k_major_x) {
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
          ptx::wgmma_tf32(sums, base_x + offset + (step / 4 * kX * 128 + step % 4 * 32) / 16, at_y(step),
                          block > at.block || step > 0);
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();  // the previous slot's products are done
        if (block > at.block) release(previous);
        previous = state.slot;
      } else {
        std::uint32_t fragments[kSteps][4];
        const std::uint32_t pairs =
            ptx::shared_address(slots) + static_cast<unsigned>(state.slot * Memory::kSlotBytes) + first_at;
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          const auto low = ptx::load_pair(pairs + step * 1024), high = ptx::load_pair((pairs ^ 64) + step * 1024 + 512);  // k + 4
          fragments[step][0] = __float_as_uint(low[0]), fragments[step][1] = __float_as_uint(low[1]);
          fragments[step][2] = __float_as_uint(high[0]), fragments[step][3] = __float_as_uint(high[1]);
        }
#pragma unroll
        for (int step = 0; step < kSteps; ++step) ptx::wgmma_pin(fragments[step]);
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
          ptx::wgmma_tf32(sums, fragments[step], at_y(step), block > at.block || step > 0);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        ptx::wgmma_pin(sums);
#pragma unroll
        for (int step = 0; step < kSteps; ++step) ptx::wgmma_pin(fragments[step]);  // alive until here
        release(state.slot);  // no proxy fence: the products have used all that was loaded
      }
    }
    if constexpr (kConfig.k_major_x) {
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(sums);
      release(previous);
    }
    if (g.splits > 1) {
      const Lines<Config> lines;
      if (!merge<Config>(sums, g, at.split, warpgroup, lines.warp * 32 + lines.lane, flags + warpgroup)) return;
    }
    if (g.plain)
      store_plain<Config>(sums, g, at.x + 64 * warpgroup, at.y, at.batch);
    else
      store<Config>(sums, g, at.x + 64 * warpgroup, at.y, at.batch, stages + warp * Memory::kStage);
  }
#endif
}

}  // namespace xgemm::matmul
