// presplit: fp32 product on Hopper's tensor cores (sm_90a) of operands that split.cuh has split in three bf16 parts:
// out = epilogue(A B) as epilogue/apply.cuh says. Design: docs/matmul.md.
//
//   Operands  parts in memory, K-major (split.cuh); TMA loads them. Sizes < 2^31.
//   Sums      bf16x3's (bf16x3/accumulate.cuh): six products; what is dropped is under 2^-24 of |A||B|.
//   Roles     One thread loads. Two warpgroups multiply 64 rows each, in turns: one promotes while the other multiplies.
//   Range     fp32's: a tile with numbers that the parts do not represent is computed again by fused multiply-adds, from the
//             operands themselves (bf16x3/exact.cuh).
//   Order     k-blocks, then splits of K: it depends on the problem and the GPU, and is the same in every run.
//
// Floors: 6 products of 2 M N K flop at 4096 per cycle and SM; per k-block and CTA, shared memory receives 384 (kX + kY) bytes.
#pragma once
#include "device/ptx/warpgroup.cuh"
#include "matmul/bf16x3/accumulate.cuh"
#include "matmul/bf16x3/exact.cuh"
#include "matmul/fp32_tiles/store.cuh"
#include "matmul/presplit/arguments.cuh"

namespace xgemm::matmul {

namespace presplit {

/// Named barriers, one id per warpgroup.
enum NamedBarrier : int { kOwnBarrier = 1, kTurnBarrier = 3 };

using SlotLayout = ptx::OperandLayout<true, 2 * kSlotK, 0>;

/// Has one of the warpgroup's units a number that the parts do not represent? Each of its 128 threads answers for the blocks
/// from its own index on, 128 apart.
template <class Config>
struct LostUnits {
  static constexpr int kUnitsY = Config::kValue.y() / kPresplitUnit;
  const unsigned char *of_x, *of_y[kUnitsY];
  int block;
  unsigned char first[1 + kUnitsY] = {};  // loaded before the products, looked at after them

  __device__ __forceinline__ LostUnits(const PresplitArguments& g, const fp32_tiles::Item<Config>& at, int warpgroup)
      : block(at.block + thread_index() % 128) {
    const auto row = [&](const unsigned char* lost, int batch, unsigned units, int line, std::int64_t lines) {
      const auto unit = static_cast<unsigned>(min(line, static_cast<int>(lines) - 1)) / kPresplitUnit;
      return lost + (static_cast<std::size_t>(batch) * units + unit) * g.blocks;
    };
    of_x = row(g.lost_x, at.batch * g.batch_step_x, g.units_x, at.x + 64 * warpgroup, g.problem.m);
#pragma unroll
    for (int y = 0; y < kUnitsY; ++y)
      of_y[y] = row(g.lost_y, at.batch * g.batch_step_y, g.units_y, at.y + kPresplitUnit * y, g.problem.n);
    if (block >= at.end) return;
    first[0] = of_x[block];
#pragma unroll
    for (int y = 0; y < kUnitsY; ++y) first[1 + y] = of_y[y][block];
  }

  __device__ __forceinline__ bool any(int end) const {
    unsigned lost = 0;
#pragma unroll
    for (const unsigned char flag : first) lost |= flag;
#pragma unroll 1
    for (int i = block + 128; i < end; i += 128) {
      lost |= of_x[i];
#pragma unroll
      for (int y = 0; y < kUnitsY; ++y) lost |= of_y[y][i];
    }
    return lost != 0;
  }
};

/// Starts the products of a slot; `x`, `y`: descriptors of its first parts. `adds`: to `large` too.
template <class Config, int kCount>
__device__ __forceinline__ void multiply(std::uint64_t x, std::uint64_t y, float (&small)[kCount], float (&large)[kCount],
                                         bool adds) {
  using Memory = Shared<Config>;
#pragma unroll
  for (int step = 0; step < kSlotK / 16; ++step) {
    const auto product = [&](auto& sums, int part_x, int part_y, bool on_top) {
      ptx::Wgmma<bf16, true, true>::mma(sums, x + (part_x * Memory::kPartX + step * SlotLayout::kStepBytes) / 16,
                                        y + (part_y * Memory::kPartY + step * SlotLayout::kStepBytes) / 16, on_top);
    };
    product(small, 0, 2, true);
    product(small, 1, 1, true);
    product(small, 0, 1, true);
    product(small, 2, 0, true);
    product(small, 1, 0, true);
    product(large, 0, 0, adds || step > 0);
  }
  ptx::wgmma_commit();
}

/// Computes the sums again, exactly, if the parts cannot represent the operands.
template <class Config>
__device__ __forceinline__ void redo_sums(float (&sums)[Config::kValue.y() / 2], const PresplitArguments& g,
                                          const fp32_tiles::Item<Config>& at, int row0, float* stage, int barrier) {
  constexpr int kLines = 64;
  const Problem& p = g.problem;
  const std::int64_t begin = static_cast<std::int64_t>(at.block) * kPresplitTileK,
                     end = min(p.k, static_cast<std::int64_t>(at.end) * kPresplitTileK);
  const auto of = [&](const Operand& x, std::int64_t offset) {
    return static_cast<const float*>(x.data) + batch_offset(p, x, at.batch) + offset;
  };
  const float* const a = of(p.a, row0 * p.a.row_stride);
  const int rows = min(kLines, static_cast<int>(p.m) - row0);
  // exact_sums computes C^T; here the sums are C's.
  const struct {
    struct {
      std::int64_t row_stride, col_stride;
    } a, b;
  } swapped{{p.b.col_stride, p.b.row_stride}, {p.a.col_stride, p.a.row_stride}};
  const fp32_tiles::Lines<Config> own;
#pragma unroll
  for (int half = 0; half < Config::kValue.y() / kLines; ++half) {
    const int column0 = at.y + half * kLines, columns = min(kLines, static_cast<int>(p.n) - column0);
    if (rows <= 0 || columns <= 0) break;
    const float* const b = of(p.b, column0 * p.b.col_stride);
    if (bf16x3::beyond_parts(a, rows, p.a.row_stride, p.a.col_stride, b, columns, p.b.col_stride, p.b.row_stride, begin, end,
                             barrier, reinterpret_cast<int*>(stage)))
      bf16x3::exact_sums<kLines>(*reinterpret_cast<float(*)[kLines / 2]>(sums + half * (kLines / 2)), swapped, b, a, columns,
                                 rows, begin, end, stage, barrier, own.of_row(own.row(0)), own.of_row(own.row(1)));
  }
}

/// The sums of K's splits, added in order by the last CTA to arrive: each CTA leaves `total` and its rounding error `small` in
/// memory. Returns true to the warpgroup that has the sum.
template <class Config>
__device__ __forceinline__ bool add_splits(float (&total)[Config::kValue.y() / 2], float (&small)[Config::kValue.y() / 2],
                                           const PresplitArguments& g, unsigned mine, int warpgroup, unsigned* flag) {
  constexpr int kWarpgroups = Config::kValue.warpgroups(), kQuads = Config::kValue.y() / 8;
  const int thread = thread_index() % 128, barrier = kOwnBarrier + warpgroup;
  const unsigned first = blockIdx.x - mine;  // the tile's first CTA
  const auto partial = [&](unsigned split) {
    return g.partials + static_cast<std::size_t>((first + split) * kWarpgroups + warpgroup) * (2 * kQuads * 512) + thread * 4;
  };
  fp32_tiles::store_quads<2>(partial(mine), total);
  fp32_tiles::store_quads<2>(partial(mine) + 512, small);
  if (!fp32_tiles::arrives_last(g.counters + first * kWarpgroups + warpgroup, g.splits, flag, thread, barrier)) return false;
#pragma unroll
  for (int i = 0; i < 4 * kQuads; ++i) total[i] = small[i] = 0;
#pragma unroll 1
  for (unsigned split = 0; split < g.splits; ++split) {
    const float* const from = partial(split);
#pragma unroll
    for (int j = 0; j < kQuads; ++j) {
      const float4 sums = __ldcg(reinterpret_cast<const float4*>(from + 1024 * j)),
                   offs = __ldcg(reinterpret_cast<const float4*>(from + 1024 * j + 512));
      const float sum[4] = {sums.x, sums.y, sums.z, sums.w}, off[4] = {offs.x, offs.y, offs.z, offs.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // 2Sum: either may be larger
        float& to = total[4 * j + i];
        const float both = to + sum[i], of_sum = both - to;
        small[4 * j + i] += ((to - (both - of_sum)) + (sum[i] - of_sum)) + off[i];
        to = both;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4 * kQuads; ++i) total[i] += bf16x3::finite_part(small[i]);
  return true;
}

}  // namespace presplit

template <class Config>
__global__ void __launch_bounds__(Config::kValue.threads(), 1) presplit_gemm(const __grid_constant__ PresplitArguments g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using namespace fp32_tiles;
  constexpr PresplitConfig kConfig = Config::kValue;
  using Memory = presplit::Shared<Config>;
  constexpr int kX = kConfig.x(), kY = kConfig.y(), kSlots = Memory::kSlots, kSums = kY / 2;

  extern __shared__ unsigned char shared_memory[];
  unsigned char* const slots = shared_memory + swizzle_padding(shared_memory);
  float* const stages = reinterpret_cast<float*>(slots + kSlots * Memory::kSlotBytes);
  const Pipeline<kSlots> pipeline{reinterpret_cast<ptx::Barrier*>(stages + Memory::kWarps * Memory::kStage)};
  unsigned* const flags = reinterpret_cast<unsigned*>(pipeline.empty + kSlots);
  const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32), lane = static_cast<int>(threadIdx.x) % 32;
  begin(g, pipeline, Memory::kWarps);

  PipelineState<kSlots> state;
  if (warp >= Memory::kWarps) {
    ptx::release_registers<24>();
    if (warp > Memory::kWarps || !ptx::elect_one()) return;
    for (unsigned index = blockIdx.x; index < g.items; index += gridDim.x) {
      const Item<Config> at(g, index);
      const int plane_x = at.batch * g.batch_step_x * kPresplitParts, plane_y = at.batch * g.batch_step_y * kPresplitParts;
      for (int slot = presplit::kSlotsOfBlock * at.block; slot < presplit::kSlotsOfBlock * at.end; ++slot, state.advance()) {
        unsigned char* target = slots + state.slot * Memory::kSlotBytes;
        ptx::Barrier* const landed = pipeline.acquire(state);
        ptx::barrier_arrive_expect(landed, Memory::kSlotBytes);
#pragma unroll
        for (int part = 0; part < kPresplitParts; ++part, target += Memory::kPartX)
          ptx::tma_load(target, &g.x, landed, slot * presplit::kSlotK, at.x, plane_x + part);
#pragma unroll
        for (int part = 0; part < kPresplitParts; ++part, target += Memory::kPartY)
          ptx::tma_load(target, &g.y, landed, slot * presplit::kSlotK, at.y, plane_y + part);
      }
    }
    return;
  }

  ptx::acquire_registers<240>();
  using Layout = presplit::SlotLayout;
  const int warpgroup = warp / 4;
  const std::uint64_t base_x = Layout::descriptor(ptx::shared_address(slots) + warpgroup * 64 * 2 * presplit::kSlotK);
  const std::uint64_t base_y = Layout::descriptor(ptx::shared_address(slots) + kPresplitParts * Memory::kPartX);
  if (warpgroup == 1) ptx::named_barrier_arrive(presplit::kTurnBarrier, 256);
  for (unsigned index = blockIdx.x; index < g.items; index += gridDim.x) {
    const Item<Config> at(g, index);
    const bool last_item = index + gridDim.x >= g.items;
    const presplit::LostUnits<Config> lost(g, at, warpgroup);
    float total[kSums] = {}, small[kSums] = {};  // sums of hi hi; of small products and of what promotion rounds off
#pragma unroll 1
    for (int block = at.block; block < at.end; ++block) {
      float large[kSums];
      int held[presplit::kSlotsOfBlock];
      pipeline.wait(state);
      ptx::named_barrier_sync(presplit::kTurnBarrier + warpgroup, 256);
      ptx::wgmma_pin(small);
#pragma unroll
      for (int i = 0; i < presplit::kSlotsOfBlock; ++i, state.advance()) {
        if (i > 0) pipeline.wait(state);
        held[i] = state.slot;
        ptx::wgmma_fence();
        const auto offset = static_cast<unsigned>(state.slot * (Memory::kSlotBytes / 16));
        presplit::multiply<Config>(base_x + offset, base_y + offset, small, large, i > 0);
      }
      if (warpgroup == 0 || !last_item || block + 1 < at.end)
        ptx::named_barrier_arrive(presplit::kTurnBarrier + 1 - warpgroup, 256);
      const auto release = [&](int slot) {
        __syncwarp();
        if (lane == 0) pipeline.release(slot);
      };
      static_assert(presplit::kSlotsOfBlock == 2);
      ptx::wgmma_wait<1>();
      release(held[0]);
      ptx::wgmma_wait<0>();
      release(held[1]);
      ptx::wgmma_pin(small);
      ptx::wgmma_pin(large);
      bf16x3::promote<false>(total, small, large);
      if (static_cast<unsigned>(block) % bf16x3::kFlush == bf16x3::kFlush - 1) bf16x3::flush(total, small);
    }
    bf16x3::flush(total, small);
    float finite[4] = {};  // a sum may overflow only because hi was rounded up
#pragma unroll
    for (int i = 0; i < kSums; ++i) finite[i % 4] = fmaf(total[i], 0.f, finite[i % 4]);
    const int row0 = at.x + 64 * warpgroup, barrier = presplit::kOwnBarrier + warpgroup;
    if (ptx::named_barrier_or(barrier, 128, lost.any(at.end) || isnan((finite[0] + finite[1]) + (finite[2] + finite[3])))) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) total[i] += bf16x3::finite_part(small[i]);
      presplit::redo_sums<Config>(total, g, at, row0, stages + warpgroup * 4 * Memory::kStage, barrier);
#pragma unroll
      for (float& x : small) x = 0;
    }
    if (g.splits > 1 && !presplit::add_splits<Config>(total, small, g, at.split, warpgroup, flags + warpgroup)) return;
    if (g.plain)
      store_plain<Config>(total, g, row0, at.y, at.batch);
    else
      store<Config>(total, g, row0, at.y, at.batch, stages + warp * Memory::kStage);
  }
#endif
}

}  // namespace xgemm::matmul
