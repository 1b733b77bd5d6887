// bf16x3: warpgroups 0 and 1 load B and split A.
#pragma once
#include "device/ptx/cp_async.cuh"
#include "device/ptx/tma.cuh"
#include "matmul/bf16x3/fallback.cuh"
#include "matmul/bf16x3/scheduler.cuh"
#include "matmul/epilogue/apply.cuh"

namespace xgemm::matmul::bf16x3 {

/// Copies 64 k from `k0` on of a tile's columns to `target`: panels of rows of 32 elements, in TMA's layout, [half of
/// k][column], else [32 columns][k]. (A struct, because with a function nvcc schedules the kernel differently.)
template <Bf16x3Config kConfig>
struct PanelCopy {
  const Problem& p;
  int warp, lane, n, k_size;

  __device__ __forceinline__ void operator()(unsigned char* target, const TileOrigin& at, int k0) const {
    constexpr int kPanels = kConfig.k_major_b ? 2 : 4, kPanelRows = kConfig.k_major_b ? kColumns : kBlock,
                  kWarpStep = kProducerWarps;
    static_assert(kWarpStep == 8, "a warp's rows are swizzled alike");
    const float* const b = static_cast<const float*>(p.b.data) + batch_offset(p, p.b, at.batch);
    const std::int64_t step = kWarpStep * (kConfig.k_major_b ? p.b.col_stride : p.b.row_stride);
    unsigned char* to = target + warp * 128 + ((lane / 4) ^ warp) * 16 + lane % 4 * 4;
#pragma unroll 1
    for (int panel = 0; panel < kPanels; ++panel) {
      const int column = at.column + (kConfig.k_major_b ? warp : panel * 32 + lane),
                k = k0 + (kConfig.k_major_b ? panel * 32 + lane : warp);
      const float* from = b + column * p.b.col_stride + k * p.b.row_stride;
      const int some = (kConfig.k_major_b ? k < k_size : column < n) ? (kConfig.k_major_b ? n - column : k_size - k) : 0;
#pragma unroll 4
      for (int row = 0; row < kPanelRows; row += kWarpStep) {
        cp_async<4>(to, from, row < some ? 4 : 0);
        from += step, to += kWarpStep * 128;
      }
    }
  }
};

/// B's blocks, by TMA or cp.async.
template <Bf16x3Config kConfig>
struct LoaderB {
  const Bf16x3Arguments& g;
  const Shared& shared;
  const int warp;
  const bool tma = g.tma || false, loads = !tma || threadIdx.x == 0;
  Scheduler<kConfig> work{g, shared.fallback};
  PipelineState<Shared::kSlotsB> state{};
  TileOrigin at = work.origin();

  __device__ __forceinline__ void load_next() {
    if (!loads || work.done()) return;
    const Problem& p = g.problem;
    const int k0 = work.block * kBlock;
    unsigned char* const target = shared.slots_b + state.slot * kSlotBytesB;
    ptx::Barrier* const landed = shared.pipeline_b.acquire(state);
    if (tma) {
      ptx::barrier_arrive_expect(landed, kSlotBytesB);
#pragma unroll
      for (int i = 0; i < (kConfig.k_major_b ? 2 : 4); ++i) {
        if constexpr (kConfig.k_major_b)
          ptx::tma_load(target + i * 16384, &g.b, landed, k0 + 32 * i, at.column, at.batch * g.batch_step_b);
        else
          ptx::tma_load(target + i * 8192, &g.b, landed, at.column + 32 * i, k0, at.batch * g.batch_step_b);
      }
    } else {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      PanelCopy<kConfig>{p, warp, lane, static_cast<int>(p.n), static_cast<int>(p.k)}(target, at, k0);
      ptx::barrier_arrive_copies(landed);
    }
    state.advance();
    if (++work.block == work.end) {
      work.advance();
      at = work.origin();
    }
  }
};

/// A's blocks, in units of 4 rows by 4 of k: each thread copies its own by cp.async, kAhead blocks before it splits them.
template <Bf16x3Config kConfig>
struct SplitterA {
  static constexpr int kUnits = Shared::kUnits, kRoundRows = kProducers / 4;
  static_assert(kUnits == kProducers);  // one round; as a loop with a run-time end, ptxas spills no register
  const Bf16x3Arguments& g;
  const Shared& shared;
  const int warp, thread, lane = thread % 32;
  unsigned char* const copies = shared.copies + thread * 16;
  // If A is contiguous along k, a half warp takes 64 k of a row; else a warp takes 16 rows by 32 of k. Both have few bank
  // conflicts. Each round is kRoundRows rows further.
  const int unit_row = g.a_along_k ? thread / 16 * 4 : (thread % 4 + thread / 64 * 4) * 4,
            unit_k = g.a_along_k ? thread % 16 * 4 : (thread / 4 % 8 + thread / 32 % 2 * 8) * 4,
            rounds = (kUnits - thread + kProducers - 1) / kProducers;
  // Of a unit's four copies of four elements: inner is contiguous.
  const std::int64_t inner_stride = g.a_along_k ? g.problem.a.col_stride : g.problem.a.row_stride,
                     outer_stride = g.a_along_k ? g.problem.a.row_stride : g.problem.a.col_stride;
  const float* const nowhere = static_cast<const float*>(g.problem.a.data);
  Scheduler<kConfig> work{g, shared.fallback};
  const float* from = nowhere;
  int rows_left = 0;
  unsigned blocks_split = 0;
  int left = 0;  ///< blocks that are copied and not yet split

  __device__ __forceinline__ SplitterA(const Bf16x3Arguments& arguments, const Shared& memory, int mine, int own_thread)
      : g(arguments), shared(memory), warp(mine), thread(own_thread) {
    open();
  }
  __device__ __forceinline__ unsigned char* copy_of(int stage, int round, int x) const {
    return copies + (stage * 4 + x) * kUnits * 16 + round * kProducers * 16;
  }
  /// Fallback: exponents that lift the rows of the thread's one unit.
  __device__ __forceinline__ std::uint32_t& lifts() const {
    return reinterpret_cast<std::uint32_t*>(shared.fallback.lifts[warp])[unit_row / 4 % 4];
  }
  __device__ __forceinline__ void open() {
    const Problem& p = g.problem;
    const auto at = work.origin();
    from = nowhere + batch_offset(p, p.a, at.batch) + (at.row + unit_row) * p.a.row_stride +
           (static_cast<std::int64_t>(work.block) * kBlock + unit_k) * p.a.col_stride;
    rows_left = static_cast<int>(p.m) - at.row - unit_row;
  }

  __device__ __forceinline__ void copy_block(int stage) {
    const Problem& p = g.problem;
    if (!work.done()) {
      ++left;
      const int depth = static_cast<int>(p.k) - work.block * kBlock - unit_k;
#pragma unroll 1
      for (int round = 0; round < rounds; ++round) {
        const int rows = rows_left - round * kRoundRows, inner = g.a_along_k ? depth : rows, outer = g.a_along_k ? rows : depth;
        const float* here = from + round * kRoundRows * p.a.row_stride;
#pragma unroll
        for (int x = 0; x < 4; ++x, here += outer_stride) {
          unsigned char* const to = copy_of(stage, round, x);
          if (g.a_vectors) {
            const bool inside = x < outer && inner > 0;
            cp_async<16>(to, inside ? here : nowhere, inside ? 16 : 0);
          } else {
#pragma unroll
            for (int y = 0; y < 4; ++y) {
              const bool inside = x < outer && y < inner;
              cp_async<4>(to + 4 * y, inside ? here + y * inner_stride : nowhere, inside ? 4 : 0);
            }
          }
        }
      }
      from += kBlock * p.a.col_stride;
      if (++work.block == work.end) {
        work.advance();
        if (!work.done()) open();
      }
    }
    cp_async_commit();  // an empty group too: the wait counts groups
  }

  /// Fallback: called before each block is split.
  __device__ __forceinline__ void find_lifts() {
    const unsigned tile = blocks_split / g.blocks;
    if (blocks_split++ != tile * g.blocks) return;
    const auto at = tile_origin(g, g.list[tile * gridDim.x + blockIdx.x]);
    const std::uint32_t found = row_lifts(g, at, unit_row, static_cast<int>(g.problem.m));
    __syncwarp();
    if (g.a_along_k ? lane % 16 == 0 : lane < 4) lifts() = found;
    __syncwarp();
  }

  /// Splits the block that was copied to `stage`. Returns what split_pair() gathers as `lost`.
  __device__ __forceinline__ std::uint32_t split_block(int stage, unsigned char* target, auto along_k) const {
    std::uint32_t lost = 0;
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
      Vector<float, 4> v[4];
#pragma unroll
      for (int x = 0; x < 4; ++x) v[x] = *reinterpret_cast<const Vector<float, 4>*>(copy_of(stage, round, x));
      if (kConfig.fallback && shared.fallback.lifts_any) lift_unit(v, along_k, lifts());
      split_unit<kConfig>(v, along_k, target, unit_row + round * kRoundRows, unit_k, lost);
    }
    return lost;
  }
};

template <Bf16x3Config kConfig>
__device__ __forceinline__ void produce(const Bf16x3Arguments& g, const Shared& shared) {
  constexpr int kAhead = Shared::kAhead;
  const int warp = warp_of_role(), thread = static_cast<int>(threadIdx.x);
  // B's block t - kSlotsA + kSlotsB is loaded when A's slot for block t is free: then the consumers are past block t - kSlotsA.
  LoaderB<kConfig> b{g, shared, warp};
  for (int i = 0; i < Shared::kSlotsB - kSlotsA; ++i) b.load_next();
  SplitterA<kConfig> a(g, shared, warp, thread);
  for (int stage = 0; stage < kAhead; ++stage) a.copy_block(stage);
  PipelineState<kSlotsA> state;
  for (int stage = 0; a.left > 0; state.advance(), stage = stage + 1 == kAhead ? 0 : stage + 1) {
    cp_async_wait<kAhead - 1>();  // waits for this thread's copies; no other thread reads them
    unsigned char* const target = shared.slots_a + state.slot * Shared::kSlotBytesA;
    ptx::Barrier* const written = shared.pipeline_a.acquire(state);
    b.load_next();
    if constexpr (kConfig.fallback)
      if (shared.fallback.lifts_any) a.find_lifts();
    const std::uint32_t lost =
        g.a_along_k ? a.split_block(stage, target, std::true_type{}) : a.split_block(stage, target, std::false_type{});
    ptx::fence_async_shared();
    const bool any = __any_sync(kFullWarp, any_lost(lost));
    if (thread % 32 == 0) {
      shared.lost_a[state.slot * 8 + warp] = any;
      ptx::barrier_arrive(written);
    }
    --a.left;
    a.copy_block(stage);
  }
}

}  // namespace xgemm::matmul::bf16x3
