// A consumer warpgroup of wgmma/kernel.cuh: multiplies 64 rows of each tile, and stores them while the next tile is loaded.
#pragma once
#include "device/ptx/wgmma.cuh"
#include "matmul/epilogue/store_gated.cuh"
#include "matmul/epilogue/store_swapped.cuh"
#include "matmul/epilogue/store_tile.cuh"
#include "matmul/wgmma/arguments.cuh"
#include "matmul/wgmma/cta.cuh"
#include "matmul/wgmma/split_k.cuh"

namespace xgemm::matmul::wgmma_detail {

/// total + the sum of a k-block of hi*hi, from which truncation takes an ulp on average. A sum that ends in four
/// zero bits has lost nothing: integers stay exact up to 2^20.
__device__ __forceinline__ float promoted(float sum, float total) {
  return fmaf(sum, __float_as_uint(sum) & 15 ? 1.f + 0x1p-23f : 1.f, total);
}

/// Products of a slot: of the only part, or of hi, and of lo*hi and hi*lo.
enum class Products : std::uint8_t { large, small };

/// Issues steps `from` to `to` - 1 of a slot's products as one committed group. `slot_a`, `slot_b`: descriptors of its first
/// bytes.
template <class Element, WgmmaConfig kConfig, Products kProducts, int kCount>
__device__ __forceinline__ void multiply(float (&sums)[kCount], std::uint32_t slot_a, std::uint32_t slot_b, bool accumulate,
                                         int from, int to) {
  constexpr int kSteps = kConfig.blocks * kWgmmaTileK / 16;
  using LayoutA = ptx::OperandLayout<kConfig.k_major_a, 128, kConfig.piece_bytes()>;
  using LayoutB = ptx::OperandLayout<kConfig.k_major_b, 128, kConfig.piece_bytes()>;
  using Instruction = ptx::Wgmma<Element, kConfig.k_major_a, kConfig.k_major_b>;
#pragma unroll
  for (int product = 0; product < (kProducts == Products::small ? 2 : 1); ++product) {
    const bool part_a = kProducts == Products::small && product == 0, part_b = kProducts == Products::small && product == 1;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step < from || step >= to) continue;
      const int at_a =
          kConfig.k_major_a ? step / 4 * kConfig.bytes_a() + step % 4 * LayoutA::kStepBytes : step * LayoutA::kStepBytes;
      const int at_b =
          kConfig.k_major_b ? step / 4 * kConfig.bytes_b() + step % 4 * LayoutB::kStepBytes : step * LayoutB::kStepBytes;
      const int part_at_a = part_a * kConfig.blocks * kConfig.bytes_a(), part_at_b = part_b * kConfig.blocks * kConfig.bytes_b();
      Instruction::mma(sums, LayoutA::descriptor(slot_a, part_at_a + at_a), LayoutB::descriptor(slot_b, part_at_b + at_b),
                       accumulate || step > 0 || product > 0);
    }
  }
  ptx::wgmma_commit();
}

template <class Element, class Out, WgmmaConfig kConfig>
struct Consumer {
  static constexpr int kStages = kConfig.stages, kParts = kConfig.parts, kAccumulators = kConfig.tile_n / 2;
  static constexpr int kConsumerThreads = 128 * kConfig.consumers(), kSteps = kConfig.blocks * kWgmmaTileK / 16;
  static constexpr bool kAlone = kConfig.consumers() == 1;
  using LayoutA = ptx::OperandLayout<kConfig.k_major_a, 128, kConfig.piece_bytes()>;
  using LayoutB = ptx::OperandLayout<kConfig.k_major_b, 128, kConfig.piece_bytes()>;
  using Sums = float[kAccumulators];

  const WgmmaArguments& g;
  const Shared<kConfig>& shared;
  const Cta<kConfig>& cta;
  const int consumer;
  const int thread = static_cast<int>(threadIdx.x) - 128, lane = thread % 32;  ///< thread: of the consumers
  const std::uint32_t base_a = LayoutA::descriptor_low(ptx::shared_address(shared.slots) +
                                                       consumer *
                                                           (kConfig.k_major_a ? 64 * kConfig.kRowBytes : kConfig.piece_bytes())),
                      base_b = LayoutB::descriptor_low(ptx::shared_address(shared.slots) +
                                                       kParts * kConfig.blocks * kConfig.bytes_a());
  const std::uint32_t empty_local = ptx::shared_address(shared.pipeline.empty),
                      empty_pair = kAlone && cta.multicast && lane < 2
                                       ? ptx::remote_address(shared.pipeline.empty, static_cast<unsigned>(lane))
                                       : 0;
  PipelineState<kStages> state;

  __device__ __forceinline__ Consumer(const WgmmaArguments& arguments, const Shared<kConfig>& memory, const Cta<kConfig>& place,
                                      int mine)
      : g(arguments), shared(memory), cta(place), consumer(mine) {}

  /// Of the current slot, in the descriptors' units of 16 bytes.
  __device__ __forceinline__ std::uint32_t slot_offset() const {
    return static_cast<std::uint32_t>(warp_uniform(state.slot) * (kConfig.stage_bytes() / 16));
  }
  template <Products kProducts = Products::large, int kCount>
  __device__ __forceinline__ void multiply(float (&sums)[kCount], std::uint32_t offset, bool accumulate, int from, int to) const {
    wgmma_detail::multiply<Element, kConfig, kProducts>(sums, base_a + offset, base_b + offset, accumulate, from, to);
  }
  __device__ __forceinline__ void release(int slot, bool really) const {
    if constexpr (kAlone) {  // predicated: branches between products are slow
      ptx::barrier_arrive_if(empty_local + 8 * static_cast<unsigned>(slot), really && !cta.multicast && lane == 0);
      if constexpr (kConfig.may_multicast())
        ptx::barrier_arrive_remote_if(empty_pair + 8 * static_cast<unsigned>(slot), really && empty_pair != 0);
    } else if (really) {
      if (cta.multicast) {
        if (lane < 2) ptx::barrier_arrive(&shared.pipeline.empty[slot], static_cast<unsigned>(lane));
      } else if (lane == 0) {
        shared.pipeline.release(slot);
      }
    }
  }

  /// The main loop of the tile's width, which is at most kColumns.
  template <int kColumns = kConfig.tile_n>
  __device__ __forceinline__ void multiply_width(Sums& result, int count) {
    // Half of the tile's and less have a tile of their own; an MN-major B is slow if it ends in a block of 64.
    constexpr int kNarrower = kColumns - (kConfig.k_major_b ? 16 : 64);
    if constexpr (kConfig.may_narrow() && 2 * kNarrower > kConfig.tile_n) {
      if (g.tiles.width <= kNarrower) return multiply_width<kNarrower>(result, count);
    }
    multiply_slots(reinterpret_cast<float(&)[kColumns / 2]>(result), count);
  }
  /// Sums the products of the next `count` (at least 1) slots; columns from the tile's width on are undefined.
  __device__ __forceinline__ void sum_slots(Sums& result, int count) {
    if constexpr (kConfig.tile_n <= 128) {  // else ptxas copies sums between products, which waits for each
#pragma unroll
      for (float& x : result) x = 0;
    }
    multiply_width(result, count);
  }
  /// Sums from zero. The wait for and the release of slots lie between a slot's two groups of products, so that a lone consumer
  /// keeps the tensor cores busy.
  template <int kCount>
  __device__ __forceinline__ void multiply_slots(float (&result)[kCount], int count) {
    constexpr int kHead = kAlone ? 2 : kSteps;
    int previous = 0;
    bool landed = false;
    for (int done = 0; done < count; ++done) {
      const std::uint32_t offset = slot_offset();
      if (!landed) shared.pipeline.wait(state);
      ptx::wgmma_fence();
      multiply(result, offset, done > 0, 0, kHead);
      ptx::wgmma_wait<1>();  // the previous slot's products are done
      release(previous, done > 0);
      previous = state.slot;
      state.advance();
      if constexpr (kHead < kSteps) {
        landed = shared.pipeline.ready(state);
        multiply(result, offset, true, kHead, kSteps);
      }
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(result);
    release(previous, true);
  }
  /// Adds the products of two parts of the next `count` slots to `result`: the large ones promoted after each slot, the small
  /// ones, in units of kLowUnit, at the end. `stagger`: consumer 2 starts one k-block after consumer 1.
  __device__ __forceinline__ void add_promoted(Sums& result, int count, bool stagger) {
    Sums large, small;
#pragma unroll
    for (int i = 0; i < kAccumulators; ++i) large[i] = small[i] = 0;
    if (stagger && consumer == 1) ptx::named_barrier_sync(kStaggerBarrier, kConsumerThreads);
    for (int done = 0; done < count; ++done) {
      shared.pipeline.wait(state);
      const std::uint32_t offset = slot_offset();
      ptx::wgmma_fence();
      multiply<Products::small>(small, offset, done > 0, 0, kSteps);
      multiply(large, offset, false, 0, kSteps);
      ptx::wgmma_wait<0>();
      release(state.slot, true);
      state.advance();
      if (stagger && consumer == 0 && done == 0) ptx::named_barrier_arrive(kStaggerBarrier, kConsumerThreads);
      ptx::wgmma_pin(large);
      ptx::wgmma_pin(small);
#pragma unroll
      for (int i = 0; i < kAccumulators; ++i) result[i] = promoted(large[i], result[i]);
    }
#pragma unroll
    for (int i = 0; i < kAccumulators; ++i) result[i] = fmaf(small[i], kLowUnit, result[i]);
  }

  /// The sums of k-blocks `begin` to `end`: of one split, or of all splits of K.
  __device__ __forceinline__ void sum_item(Sums& total, int begin, int end) {
    if constexpr (kParts == 1) {
      const auto slots_of = [](int count) { return (count + kConfig.blocks - 1) / kConfig.blocks; };
      sum_slots(total, slots_of(kConfig.may_split() ? min(g.k.split_blocks, end - begin) : end - begin));
      if constexpr (kConfig.may_split()) {
        for (int block = begin + g.k.split_blocks; block < end; block += g.k.split_blocks) {
          Sums split;
          sum_slots(split, slots_of(min(g.k.split_blocks, end - block)));
#pragma unroll
          for (int i = 0; i < kAccumulators; ++i) total[i] += split[i];
        }
      }
    } else {
      // One consumer promotes and stores while the other multiplies. With fewer blocks than slots, consumer 1 could be two
      // items ahead at the barrier; from kStages blocks on, the ring holds it back.
      bool stagger = kConfig.consumers() == 2 && end - begin >= kStages;
#pragma unroll
      for (float& x : total) x = 0;
      for (int block = begin; block < end; block += g.k.chunk_blocks) {
        add_promoted(total, min(g.k.chunk_blocks, end - block), stagger);
        stagger = false;
      }
    }
  }

  /// Of the item's number in this CTA, by a division: a counter would occupy a register through the main loop.
  __device__ __forceinline__ unsigned parity_of(int index) const {
    return static_cast<unsigned>(g.schedule.at_a_time.divide(index) & 1);
  }

  __device__ __forceinline__ void store(const Sums& total, int index, const Item& item, const Tile& tile) const {
    if constexpr (kConfig.may_split()) {
      if (cta.cluster > 1) return reduce_in_cluster<Out, kConfig>(total, g, tile, item.split, thread, shared, parity_of(index));
    }
    const int again = thread_index() - 128;
    if constexpr (kConfig.may_split_memory()) {
      if (g.memory_splits > 1)
        return reduce_in_memory<Out, kConfig>(total, g, tile, cta.multicast ? 2 * item.tile + cta.pair_rank() : item.tile,
                                              item.split, index + cta.item_step() >= g.schedule.items, again, shared.share);
    }
    const int store_lane = again % 32, store_warp = again / 32;
    if constexpr (kConfig.gated) {
      store_gated<Out, kConfig>(total, g, tile, store_warp, store_lane, shared.staging);
    } else {
      const bool has_inputs = kConfig.fills_scales() || g.fills_bias;  // cluster is 1 here
      if (has_inputs) shared.filled.wait({0, parity_of(index)});
      bool stored = false;
      if constexpr (kConfig.may_swap()) {
        if ((stored = g.swapped)) {
          const int mine = store_warp / 4, first = 64 * mine;
          store_swapped<Out, kConfig>(total, g, tile.row + first, tile.column, tile.batch, again % 128,
                                      shared.staging + mine * 4 * kConfig.staging_bytes(),
                                      reinterpret_cast<const float*>(shared.inputs) + first, kSwappedBarrier + mine);
        }
      }
      if (!stored)
        store_tile<Out, kConfig>(total, g, tile.row + store_warp * 16, tile.column, tile.batch, store_lane,
                                 shared.staging + store_warp * kConfig.staging_bytes(), shared.inputs, store_warp * 16);
      if (has_inputs) {
        __syncwarp();
        if (ptx::elect_one()) shared.filled.release(0);
      }
    }
  }

  __device__ __forceinline__ void run() {
    cta.start();
    for (int index = cta.first_item(); index < g.schedule.items; index += cta.item_step()) {
      const auto item = item_at<kConfig>(g, index, cta.rank, g.k.blocks);
      const auto tile = locate<kConfig>(g, item.tile, cta.pair_rank());
      Sums total;
      sum_item(total, item.begin, item.end);
      store(total, index, item, tile);
    }
    if (ptx::elect_one()) ptx::tma_store_wait_read<0>();  // shared memory must outlive the stores' reads
  }
};

}  // namespace xgemm::matmul::wgmma_detail
