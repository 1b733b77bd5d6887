// bf16x3: warpgroups 2 and 3 split B in registers and multiply, 64 columns of C each: C^T = B^T A^T. They take turns at the
// tensor cores: one splits and promotes while the other multiplies.
#pragma once
#include "device/ptx/warpgroup.cuh"
#include "matmul/bf16x3/accumulate.cuh"
#include "matmul/bf16x3/exact.cuh"
#include "matmul/bf16x3/fallback.cuh"
#include "matmul/bf16x3/store.cuh"

namespace xgemm::matmul::bf16x3 {

template <Bf16x3Config kConfig>
struct Consumer {
  using Work = Scheduler<kConfig>;
  using Layout = ptx::OperandLayout<true, 128, 0>;
  static constexpr int kSums = kRows / 2;
  static constexpr bool kKeepsOffset = !kConfig.short_k;  // ptxas has no register for it in the others

  const Bf16x3Arguments& g;
  const Shared& shared;
  const int lane = static_cast<int>(threadIdx.x) % 32, consumer = warp_of_role() / 4 - 2, barrier = kConsumerBarrier + consumer;
  float* const stage = shared.stages + consumer * kStageRows * Shared::kPitch;
  unsigned char* const column_lifts = shared.fallback.lifts[kProducerWarps] + consumer * 64;
  const std::uint64_t base_a = Layout::descriptor(ptx::shared_address(shared.slots_a));
  const std::uint32_t kept_offset = kKeepsOffset ? SlotReader<kConfig>::first_offset() : 0;
  PipelineState<kSlotsA> state_a;
  PipelineState<Shared::kSlotsB> state_b;
  Fragments fragments;

  __device__ __forceinline__ Consumer(const Bf16x3Arguments& arguments, const Shared& memory) : g(arguments), shared(memory) {}

  __device__ __forceinline__ std::uint32_t first_of_slot() const {
    return ptx::shared_address(shared.slots_b) + static_cast<unsigned>(state_b.slot * kSlotBytesB) +
           (kKeepsOffset ? kept_offset : SlotReader<kConfig>::first_offset());
  }
  /// All lanes arrive if threads refill the slot by cp.async: racecheck does not follow reads through __syncwarp().
  __device__ __forceinline__ void release(ptx::Barrier& slot, int arriving) const {
    __syncwarp();
    if (lane < arriving) ptx::barrier_arrive(&slot);
  }

  /// B's slot becomes fragments.
  __device__ __forceinline__ void split_columns(std::uint32_t& lost) {
    shared.pipeline_b.wait(state_b);
    if (kConfig.fallback && shared.fallback.lifts_any) {
      const FragmentPlace<kConfig> place;
      const float first = __int_as_float(column_lifts[place.first] << 23),
                  second = __int_as_float(column_lifts[place.second] << 23);
      lost |= SlotReader<kConfig>::template split<kConfig.fallback>(fragments, first_of_slot(), first, second);
    } else {
      lost |= SlotReader<kConfig>::template split<false>(fragments, first_of_slot(), 1.f, 1.f);
    }
    // No proxy fence: TMA refills the slot only after A's slot of this block is released, so after the fragments' products.
    release(shared.pipeline_b.empty[state_b.slot], g.tma ? 1 : 32);
    state_b.advance();
  }

  /// Adds a block of k. kHalves: a tile's first block, of which every other step's products of hi hi are summed in `total`.
  /// `passes`: the other warpgroup has another block.
  template <bool kHalves>
  __device__ __forceinline__ void add_block(float (&total)[kSums], float (&small)[kSums], std::uint32_t& lost, bool passes) {
    split_columns(lost);
    shared.pipeline_a.wait(state_a);
    ptx::named_barrier_sync(kPingPongBarrier + consumer, 256);
    float large[kSums];
    const std::uint64_t slot_a = base_a + static_cast<unsigned>(state_a.slot * (Shared::kSlotBytesA / 16));
    pin(fragments);
    ptx::wgmma_fence();
    multiply<kHalves>(fragments, slot_a, total, small, large);
    if (passes) ptx::named_barrier_arrive(kPingPongBarrier + 1 - consumer, 256);
    if (lane == 0) {  // the lane that releases the slot
#pragma unroll
      for (int i = 0; i < kProducerWarps; ++i) lost |= shared.lost_a[state_a.slot * 8 + i];
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(small);
    ptx::wgmma_pin(large);
    if constexpr (kHalves) ptx::wgmma_pin(total);
    pin(fragments);  // alive until here: the tensor cores read them
    release(shared.pipeline_a.empty[state_a.slot], 1);
    state_a.advance();
    promote<kHalves>(total, small, large);
  }

  /// The sums of this CTA's blocks of a tile.
  __device__ __forceinline__ void sum_blocks(float (&total)[kSums], const Work& work, std::uint32_t& lost) {
    float small[kSums] = {};  // sums of small products and of what promotion rounds off; `total`: of hi hi
#pragma unroll
    for (float& x : total) x = 0;
    const bool more = consumer == 0 || !work.last_tile();
    if constexpr (kConfig.short_k) {
      add_block<true>(total, small, lost, more || work.end > 1);
      if (work.end > 1) add_block<false>(total, small, lost, more);
    } else {
      for (int block = work.block; block < work.end; ++block) {
        add_block<false>(total, small, lost, more || block + 1 < work.end);
        if (static_cast<unsigned>(block) % kFlush == kFlush - 1) flush(total, small);
      }
    }
#pragma unroll
    for (int i = 0; i < kSums; ++i) total[i] += finite_part(small[i]);
  }

  /// Computes sums again that bf16 parts cannot represent.
  __device__ __forceinline__ void mend(float (&total)[kSums], const Work& work, const TileOrigin& at, int rows, int columns,
                                       int column0, std::uint32_t lost) {
    // A sum may overflow only because hi was rounded up.
    float finite = 0;
#pragma unroll
    for (const float x : total) finite = fmaf(x, 0.f, finite);
    const FragmentPlace<kConfig> place;
    if (isnan(finite)) {
      if constexpr (kConfig.fallback)
        find_overflow<kConfig>(total, g, place, at, column0, rows, static_cast<int>(g.problem.n), lost);
      else
        lost = 1;
    }
    if constexpr (kConfig.fallback)
      if (shared.fallback.lifts_any) undo_lifts<kConfig>(total, g, column_lifts, place, at, rows);
    if (ptx::named_barrier_or(barrier, 128, any_lost(lost)))
      redo_sums<kConfig>(total, g, shared.fallback, work, place, at, rows, columns, column0, stage, barrier);
  }

  __device__ __forceinline__ void run() {
    if (consumer == 1) ptx::named_barrier_arrive(kPingPongBarrier, 256);
    const int m = static_cast<int>(g.problem.m), n = static_cast<int>(g.problem.n);
    for (Work work(g, shared.fallback); !work.done(); work.advance()) {
      float total[kSums];
      std::uint32_t lost = 0;
      if constexpr (kConfig.fallback)
        if (shared.fallback.lifts_any) find_column_lifts<kConfig>(g, column_lifts, work, consumer, n);
      sum_blocks(total, work, lost);
      const auto at = work.origin();
      const int rows = min(kRows, m - at.row), column0 = at.column + consumer * 64, columns = min(64, n - column0);
      mend(total, work, at, rows, columns, column0, lost);
      store<kConfig>(total, g, shared, work, {at.batch, at.row, column0, rows, columns}, consumer, stage, barrier);
    }
  }
};

}  // namespace xgemm::matmul::bf16x3
