// fp32 product in tf32 on Hopper's tensor cores (sm_90a) in one launch: out = epilogue(A B) as epilogue/apply.cuh says. TMA
// rounds every number to tf32 (10 bits, to nearest even) on its way to shared memory. Design: docs/matmul.md.
//
//   Operands  x and y: rows of A and columns of B, or (`swapped`) columns of B and rows of A; then the tensor cores compute
//             C^T. y is contiguous along k; x goes through registers if it is not. Base and strides are multiples of 16 bytes,
//             sizes under 2^31.
//   Roles     One thread loads (TMA). Each warpgroup multiplies 64 lines of x by the tile's lines of y.
//   Order     k-blocks, then splits of K (split_k/in_memory.cuh): it depends on the problem and the GPU.
//   Edges     A K-major operand's edge tiles begin earlier and overlap the tiles before them; both compute the same bits.
//   Range     fp32's, Inf and NaN as in torch; numbers within 2^-12 of fp32's largest are rounded to Inf, as in torch's TF32.
//
// Floors: 2 M N K flop at 2048 per cycle and SM; per k-block of 32 and CTA, shared memory receives 128 (kX + kY) bytes from TMA
// and supplies 128 (64 + kY) to each warpgroup, at 128 bytes per cycle; bytes of A, B and C once.
#include <algorithm>

#include "device/integer.h"
#include "device/launch.h"
#include "device/ptx/grid.cuh"
#include "device/ptx/tma.cuh"
#include "device/ptx/warpgroup.cuh"
#include "device/ptx/wgmma.cuh"
#include "matmul/dispatch.h"
#include "matmul/fp16_split/pack.cuh"
#include "matmul/launch.h"
#include "matmul/operand_map.h"
#include "matmul/tf32/store.cuh"

namespace xgemm::matmul {

namespace tf32_detail {

/// One thread.
template <Tf32Config kConfig>
__device__ __forceinline__ void produce(const Tf32Arguments& g, unsigned char* slots,
                                        const Pipeline<Shared<kConfig>::kSlots>& pipeline) {
  using Memory = Shared<kConfig>;
  constexpr int kX = kConfig.x(), kY = kConfig.y(), kBlocks = kConfig.blocks(), kDepth = Memory::kDepth;
  PipelineState<Memory::kSlots> state;
  for (unsigned index = blockIdx.x; index < g.items; index += gridDim.x) {
    const Item<kConfig> at{g, index};
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
}

/// A warpgroup's 64 lines of x.
template <Tf32Config kConfig>
struct Consumer {
  using Memory = Shared<kConfig>;
  using Layout = ptx::OperandLayout<true, 128, 0>;
  static constexpr int kX = kConfig.x(), kY = kConfig.y(), kDepth = Memory::kDepth, kSteps = kDepth / 8;

  const Pipeline<Memory::kSlots>& pipeline;
  const std::uint32_t slots;
  const int warpgroup, lane;
  const std::uint64_t base_y = Layout::descriptor(slots + Memory::kBytesX),
                      base_x = Layout::descriptor(slots + static_cast<unsigned>(warpgroup * 64 * 128));
  const std::uint32_t first_at = first_pair(warpgroup);
  PipelineState<Memory::kSlots> state{};

  /// MN-major x: offset in the slot of the thread's pair of lines at its first k, l % 4.
  static __device__ __forceinline__ std::uint32_t first_pair(int warpgroup) {
    const Lines<kConfig> at;
    const int line = at.first() % 32;
    return static_cast<std::uint32_t>((warpgroup * 2 + at.first() / 32) * kDepth * 128 + at.quad * 128 +
                                      ((line / 4) ^ at.quad) * 16 + line % 4 * 4);
  }

  __device__ __forceinline__ void release(int slot) const {
    __syncwarp();
    if (lane == 0) pipeline.release(slot);
  }
  __device__ __forceinline__ std::uint64_t at_y(std::uint64_t slot, int step) const {
    return base_y + slot + (step / 4 * kY * 128 + step % 4 * 32) / 16;
  }

  /// x from shared memory. `previous`: the slot of the block before.
  __device__ __forceinline__ void add_k_major(float (&sums)[kY / 2], std::uint64_t slot, bool first, int& previous) const {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      ptx::wgmma_tf32(sums, base_x + slot + (step / 4 * kX * 128 + step % 4 * 32) / 16, at_y(slot, step), !first || step > 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();  // the previous slot's products are done
    if (!first) release(previous);
    previous = state.slot;
  }
  /// x through registers.
  __device__ __forceinline__ void add_mn_major(float (&sums)[kY / 2], std::uint64_t slot, bool first) const {
    std::uint32_t fragments[kSteps][4];
    const std::uint32_t pairs = slots + static_cast<unsigned>(state.slot * Memory::kSlotBytes) + first_at;
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
    for (int step = 0; step < kSteps; ++step) ptx::wgmma_tf32(sums, fragments[step], at_y(slot, step), !first || step > 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(sums);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) ptx::wgmma_pin(fragments[step]);  // alive until here
    release(state.slot);  // no proxy fence: the products have used all that was loaded
  }

  __device__ __forceinline__ void sum_blocks(float (&sums)[kY / 2], const Item<kConfig>& at) {
    int previous = 0;
    for (int block = at.block; block < at.end; ++block, state.advance()) {
      const std::uint64_t slot = static_cast<unsigned>(state.slot * (Memory::kSlotBytes / 16));
      pipeline.wait(state);
      if constexpr (kConfig.k_major_x)
        add_k_major(sums, slot, block == at.block, previous);
      else
        add_mn_major(sums, slot, block == at.block);
    }
    if constexpr (kConfig.k_major_x) {
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(sums);
      release(previous);
    }
  }
};

/// Stores a warpgroup's sums of an item to C, or adds its splits. `stage`: the warp's.
template <Tf32Config kConfig>
__device__ __forceinline__ void finish(const float (&sums)[kConfig.y() / 2], const Tf32Arguments& g, const Item<kConfig>& at,
                                       int warpgroup, float* stage, MeetingShare* share) {
  constexpr int kY = kConfig.y();
  const Problem& p = g.problem;
  const int x = at.x + 64 * warpgroup;
  const bool split = g.splits > 1;
  if (!split && !g.plain) return store<kConfig>(sums, g, x, at.y, at.batch, stage);
  PlainRows rows{static_cast<float*>(p.out) + static_cast<std::int64_t>(at.batch) * p.m * p.n,
                 p.n,
                 static_cast<int>(p.m),
                 static_cast<int>(p.n),
                 static_cast<float>(p.alpha),
                 static_cast<const float*>(p.bias.data),
                 p.bias.col_stride};
  if (split) {
    const auto part = static_cast<std::size_t>(blockIdx.x * kConfig.warpgroups() + static_cast<unsigned>(warpgroup));
    const int columns = g.swapped ? 64 : kY;
    rows = {g.partials + part * (64 * kY), columns, g.swapped ? kY : 64, columns, 1.f, nullptr, 0};
  }
  store_plain<kConfig>(sums, rows, g.swapped, split ? 0 : x, split ? 0 : at.y);
  if (split) add_tile_splits<kConfig>(g, at, x, warpgroup, rows, share);
}

}  // namespace tf32_detail

template <Tf32Tile kTile, bool kKMajorX>
__global__ void __launch_bounds__(Tf32Config{kTile, kKMajorX}.threads(), 1) tf32_gemm(const __grid_constant__ Tf32Arguments g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using namespace tf32_detail;
  constexpr Tf32Config kConfig{kTile, kKMajorX};
  using Memory = Shared<kConfig>;
  extern __shared__ unsigned char shared_memory[];
  unsigned char* const slots = shared_memory + swizzle_padding(shared_memory);
  float* const stages = reinterpret_cast<float*>(slots + Memory::kSlots * Memory::kSlotBytes);
  const Pipeline<Memory::kSlots> pipeline{reinterpret_cast<ptx::Barrier*>(stages + Memory::kWarps * Memory::kStage)};
  MeetingShare* const shares = reinterpret_cast<MeetingShare*>(pipeline.empty + Memory::kSlots);  // [warpgroup]
  const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32), lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    pipeline.init(1, Memory::kWarps);
    ptx::fence_barrier_init();
    ptx::prefetch_tensor_map(&g.x);
    ptx::prefetch_tensor_map(&g.y);
  }
  __syncthreads();
  ptx::grid_wait();
  ptx::grid_release();
  if (warp >= Memory::kWarps) {
    if constexpr (kConfig.lends()) ptx::release_registers<24>();
    if (warp == Memory::kWarps && ptx::elect_one()) produce<kConfig>(g, slots, pipeline);
    return;
  }
  if constexpr (kConfig.lends()) ptx::acquire_registers<240>();
  const int warpgroup = warp / 4;
  Consumer<kConfig> consumer{pipeline, ptx::shared_address(slots), warpgroup, lane};
  for (unsigned index = blockIdx.x; index < g.items; index += gridDim.x) {
    const Item<kConfig> at{g, index};
    float sums[kConfig.y() / 2];
    consumer.sum_blocks(sums, at);
    finish<kConfig>(sums, g, at, warpgroup, stages + warp * Memory::kStage, shares + warpgroup);
  }
#endif
}

namespace {

template <Tf32Tile kTile, bool kKMajorX>
bool launch(const Tf32Arguments& g, std::int64_t ctas, cudaStream_t stream) {
  constexpr Tf32Config kConfig{kTile, kKMajorX};
  return enqueue_with_shared<tf32_gemm<kTile, kKMajorX>, tf32_detail::Shared<kConfig>::kBytes>(
      early_grid(ctas, kConfig.threads()), stream, g);
}

}  // namespace

bool launch_tf32(const Problem& p, const Tf32Plan& plan, unsigned char* workspace, void* counters, float* partials,
                 cudaStream_t stream) {
  const TileInfo& tile = info(plan.tile);
  const int depth = tile.k;
  const bool swapped = plan.swap_ab;
  const TensorOperand &x = swapped ? plan.b : plan.a, &y = swapped ? plan.a : plan.b;
  const std::int64_t lines_x = swapped ? p.n : p.m, lines_y = swapped ? p.m : p.n;
  const bool k_major_x = x.k_major;
  // Boxes end with the last line, rounded up to 8. Stale shared memory past it affects only sums that are not stored.
  const auto box = [](int size, std::int64_t lines) {
    return static_cast<int>(std::min<std::int64_t>(size, round_up(lines, 8)));
  };
  const int box_x = k_major_x ? box(tile.m, lines_x) : tile.m, box_y = box(tile.n, lines_y);
  const bool columns = p.n % 4 == 0;  // quads of C begin at multiples of 16 bytes
  Tf32Arguments g{.x = {},
                  .y = {},
                  .problem = p,
                  .swapped = swapped,
                  .plain = has_plain_epilogue(p),
                  .batch_step_x = x.batch_step,
                  .batch_step_y = y.batch_step,
                  .slot_bytes = (box_x + box_y) * depth * 4,
                  .tiles_x = static_cast<unsigned>(plan.tiles_x),
                  .tiles_y = static_cast<unsigned>(plan.tiles_y),
                  .last_x = last_tile(k_major_x && (columns || !swapped), lines_x, tile.m),
                  .last_y = last_tile(columns || swapped, lines_y, tile.n),
                  .items = static_cast<unsigned>(plan.tiles_x * plan.tiles_y * p.batches * plan.splits),
                  .splits = static_cast<unsigned>(plan.splits),
                  .blocks = static_cast<unsigned>(plan.blocks),
                  .split_blocks = static_cast<unsigned>(plan.split_blocks),
                  .meetings = static_cast<Meeting*>(counters),
                  .partials = partials};
  const auto map = [&](CUtensorMap& to, const TensorOperand& t, const Operand& operand, int lines) {
    return make_operand_map(to, p, operand, t, workspace, DType::f32, 32, t.k_major ? lines : depth, 1, true);
  };
  if (!map(g.x, x, swapped ? p.b : p.a, box_x) || !map(g.y, y, swapped ? p.a : p.b, box_y)) return false;
  launch_pack(p, pack_operand<std::uint32_t>(p, lines_of_a(p), plan.a, workspace),
              pack_operand<std::uint32_t>(p, lines_of_b(p), plan.b, workspace), stream);
  bool launched = false;
  dispatch_tile<kTf32Tiles.size()>(plan.tile, [&]<Tf32Tile kTile>() {
    launched = k_major_x ? launch<kTile, true>(g, plan.ctas, stream) : launch<kTile, false>(g, plan.ctas, stream);
  });
  return launched;
}

}  // namespace xgemm::matmul
