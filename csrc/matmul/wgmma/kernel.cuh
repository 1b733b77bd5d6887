// Matrix product on Hopper's tensor cores (sm_90a): half-precision operands, and fp32 operands that fp16_split/split.cuh has
// turned into one or two scaled fp16 parts; out = epilogue(A B) as epilogue/apply.cuh says. One persistent, warp-specialised
// kernel: warpgroup 0 loads by TMA, the others multiply 64 rows each by wgmma, and C is stored while the next tile is computed
// (epilogue/store_*.cuh, wgmma/split_k.cuh). Arguments: wgmma/arguments.cuh; design: docs/matmul.md.
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
#include "device/arguments.cuh"
#include "device/ptx/cluster.cuh"
#include "device/ptx/grid.cuh"
#include "device/ptx/tma.cuh"
#include "device/ptx/warpgroup.cuh"
#include "device/warp.cuh"
#include "matmul/epilogue/store_gated.cuh"
#include "matmul/epilogue/store_tile.cuh"
#include "matmul/wgmma/multiply.cuh"
#include "matmul/wgmma/schedule.cuh"
#include "matmul/wgmma/split_k.cuh"
#include "matmul/wgmma/tile_inputs.cuh"

namespace xgemm::matmul {

template <class Element, class Out, class Config>
__global__ void __launch_bounds__(Config::kValue.threads(), 1) wgmma_gemm(const __grid_constant__ WgmmaArguments g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr WgmmaConfig kConfig = Config::kValue;
  static_assert(kConfig.fits());
  constexpr int kTileM = kConfig.tile_m, kTileN = kConfig.tile_n, kStages = kConfig.stages, kParts = kConfig.parts;
  constexpr int kAccumulators = kTileN / 2, kConsumerWarps = 4 * kConfig.consumers(), kConsumerThreads = 32 * kConsumerWarps;
  constexpr int kRowBytes = kConfig.kRowBytes, kPieceBytes = kConfig.piece_bytes();

  extern __shared__ unsigned char shared_memory[];
  unsigned char* const slots = shared_memory + swizzle_padding(shared_memory);
  unsigned char* const staging = slots + kConfig.slots_bytes();
  int* const inputs = reinterpret_cast<int*>(staging + kConsumerWarps * kConfig.staging_bytes());
  const Pipeline<kStages> pipeline{
      reinterpret_cast<ptx::Barrier*>(reinterpret_cast<unsigned char*>(inputs) + kConfig.input_bytes())};
  ptx::Barrier* const merged = pipeline.empty + kStages;  // the slots, which held a cluster's sums, may be loaded again
  [[maybe_unused]] const Pipeline<1> filled{merged + 1};  // `inputs`: filled by idle warps, released by consumer warps
  ptx::Barrier* const arrived = merged + 3;               // the cluster's sums of this CTA's columns have arrived
  MeetingShare* const share = reinterpret_cast<MeetingShare*>(merged + 4);
  const int cluster = kConfig.may_split() ? g.k.cluster_splits : 1;
  const bool multicast = kConfig.may_multicast() && g.tiles.multicast != 0;

  const int warpgroup = warp_uniform(static_cast<int>(threadIdx.x) / 128);
  // The prologue is part of every launch, and a single warp issues one instruction in five cycles: one warp initialises the
  // barriers, another prefetches the tensor maps.
  if (threadIdx.x == 32) {
    pipeline.init(1, multicast ? 2 * kConsumerWarps : kConsumerWarps);
    ptx::barrier_init(merged, kConsumerWarps);
    ptx::barrier_init(arrived, 1);
    if constexpr (!kConfig.gated) filled.init(kConfig.fillers(), kConsumerWarps);
    ptx::fence_barrier_init();
  }
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
    if (wgmma_detail::falls_back(g)) return;
  }
  const bool clustered = cluster > 1 || multicast;
  if (clustered) ptx::cluster_arrive_thread();  // as early as possible, because each CTA waits for all
  // Each warp calls it once, before it touches global or another CTA's shared memory; loaders first locate their tile.
  const auto start = [&] {
    ptx::grid_wait();
    if (clustered) ptx::cluster_wait_thread();  // all CTAs of the cluster run: their shared memory may be written
  };

  // The CTA's rank in a cluster is its split.
  const int blocks = g.k.blocks;
  const int rank = cluster == 1 ? -1 : static_cast<int>(ptx::cluster_rank());
  const auto first_item = [&] {  // each role computes it: ptxas spills values that are computed before the roles branch
    int cta;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(cta));
    return cta >> g.schedule.shift;
  };
  const auto pair_rank = [&] { return multicast ? static_cast<int>(ptx::cluster_rank()) : 0; };
  const int item_step = static_cast<int>(g.schedule.at_a_time.divisor);

  if (warpgroup == 0) {
    if constexpr (kConfig.consumers() == 2) ptx::release_registers<24>();
    const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32);
    const bool loads = warp < kConfig.loaders();
    int turns = warp;  // slots that other loaders fill before this warp's next one
    const bool leads = ptx::elect_one();
    PipelineState<kStages> state;
    unsigned merges = 0;
    if (!loads) {
      if constexpr (kConfig.may_store_direct() && kConfig.k_major_b) {
        if (warp == 3 && g.prefetch.bytes > 0) {
          const auto item = wgmma_detail::item_at<Config>(g, first_item(), rank, blocks);
          wgmma_detail::prefetch_b(g, item, wgmma_detail::locate<Config>(g, item.tile, pair_rank()));
        }
      }
      start();
      fetch_arguments(g);
    }
    bool walks = true;  // loops over the items below; warps that fill `inputs` do not
    if constexpr (!kConfig.gated) {
      if (!loads && (kConfig.fills_scales() ? cluster == 1 : g.fills_bias)) {
        unsigned parity = 1;
        for (int index = first_item(); index < g.schedule.items; index += item_step, parity ^= 1) {
          ptx::barrier_wait(filled.empty, parity);
          const auto tile = wgmma_detail::locate<Config>(g, index, pair_rank());
          const int thread = static_cast<int>(threadIdx.x) - 32 * kConfig.loaders();
          if constexpr (kConfig.fills_scales())
            wgmma_detail::fill_scales<Config>(g, tile.row, tile.column, tile.batch, thread, inputs);
          else
            wgmma_detail::fill_bias<Out, Config>(g, tile.column, thread, inputs);
          ptx::barrier_arrive(filled.full);
        }
        walks = false;  // cluster is 1: there is no cluster barrier to match
      }
    }
    for (int index = walks ? first_item() : g.schedule.items; index < g.schedule.items; index += item_step) {
      if (loads) {
        if (cluster > 1 && merges++ > 0) ptx::barrier_wait(merged, merges & 1);
        const auto item = wgmma_detail::item_at<Config>(g, index, rank, blocks);
        const int rank_of_pair = warp_uniform(pair_rank());
        const auto tile = wgmma_detail::locate<Config>(g, item.tile, rank_of_pair);
        // With multicast, each CTA loads half of the rows of the shared operand's boxes into both CTAs.
        constexpr bool kMayShareA = kConfig.may_multicast() && kConfig.multicasts_a(),
                       kMayShareB = kConfig.may_multicast() && !kMayShareA;
        const int shift_a = kMayShareA ? rank_of_pair * g.tiles.multicast : 0,
                  shift_b = kMayShareB ? rank_of_pair * g.tiles.multicast : 0;
        const auto load = [&](bool both, unsigned char* to, const CUtensorMap& map, ptx::Barrier* landed, int c0, int c1,
                              int c2) {
          if (both)
            ptx::tma_load_multicast(to, &map, landed, c0, c1, c2, 3);
          else
            ptx::tma_load(to, &map, landed, c0, c1, c2);
        };
        const int begin = warp_uniform(item.begin), end = warp_uniform(item.end), row = warp_uniform(tile.row),
                  column = warp_uniform(tile.column);
        const int batch_a = warp_uniform(tile.batch * g.batch_step_a * kParts),
                  batch_b = warp_uniform(tile.batch * g.batch_step_b * kParts);
        if (index == first_item()) start();
        for (int block = begin; block < end; block += kConfig.blocks, state.advance()) {
          if constexpr (kConfig.loaders() > 1) {
            if (--turns >= 0) continue;
            turns = kConfig.loaders() - 1;
          }
          unsigned char* target = slots + state.slot * kConfig.stage_bytes();
          const int k = block * kWgmmaTileK;
          ptx::Barrier* const landed = pipeline.acquire(state);
          if (leads) {
            ptx::barrier_arrive_expect(landed, static_cast<unsigned>(g.slot_bytes));
            // A box holds one k-block of all lines of a K-major operand, or all k-blocks of 64 lines of an MN-major operand.
#pragma unroll
            for (int part = 0; part < kParts; ++part, target += kConfig.blocks * kConfig.bytes_a()) {
              unsigned char* const to = target + shift_a * kRowBytes;
#pragma unroll
              for (int i = 0; i < (kConfig.k_major_a ? kConfig.blocks : kTileM / 64); ++i) {
                if constexpr (kConfig.k_major_a)
                  load(kMayShareA && multicast, to + i * kConfig.bytes_a(), g.a, landed, k + kWgmmaTileK * i, row + shift_a,
                       batch_a + part);
                else
                  load(kMayShareA && multicast, to + i * kPieceBytes, g.a, landed, row + 64 * i, k + shift_a, batch_a + part);
              }
            }
#pragma unroll
            for (int part = 0; part < kParts; ++part, target += kConfig.blocks * kConfig.bytes_b()) {
              unsigned char* const to = target + shift_b * kRowBytes;
#pragma unroll
              for (int i = 0; i < (kConfig.k_major_b ? kConfig.blocks : kTileN / 64); ++i) {
                if constexpr (kConfig.k_major_b)
                  load(kMayShareB && multicast, to + i * kConfig.bytes_b(), g.b, landed, k + kWgmmaTileK * i, column + shift_b,
                       batch_b + part);
                if constexpr (kConfig.gated)
                  ptx::tma_load(target + i * kConfig.bytes_b() + kConfig.columns() * kRowBytes, &g.gate.up, landed,
                                k + kWgmmaTileK * i, column, batch_b + part);
                if constexpr (!kConfig.k_major_b)
                  load(kMayShareB && multicast, to + i * kPieceBytes, g.b, landed, column + 64 * i, k + shift_b, batch_b + part);
              }
            }
          }
          __syncwarp();
        }
      }
      if (cluster > 1) wgmma_detail::sync_cluster();  // matches the one in reduce_in_cluster
    }
    // Shared memory must outlive the other CTA's arrivals: a slot has received all of them when it may be loaded again. (A
    // cluster barrier would fence all memory. The condition is read again and the loop stays rolled, or the loop above spills.)
    if (kConfig.may_multicast() && g.tiles.multicast && threadIdx.x < 32) {
#pragma unroll 1
      for (int s = 0; s < kStages; ++s, state.advance()) pipeline.acquire(state);
    }
  } else {
    if constexpr (kConfig.consumers() == 2) ptx::acquire_registers<240>();
    using LayoutA = ptx::OperandLayout<kConfig.k_major_a, 128, kPieceBytes>;
    using LayoutB = ptx::OperandLayout<kConfig.k_major_b, 128, kPieceBytes>;
    const int consumer = warpgroup - 1, thread = static_cast<int>(threadIdx.x) - 128;  // of the consumers
    const int lane = thread % 32;
    const std::uint32_t base_a =
        LayoutA::descriptor_low(ptx::shared_address(slots) + consumer * (kConfig.k_major_a ? 64 * kRowBytes : kPieceBytes));
    const std::uint32_t base_b =
        LayoutB::descriptor_low(ptx::shared_address(slots) + kParts * kConfig.blocks * kConfig.bytes_a());

    constexpr int kSteps = kConfig.blocks * kWgmmaTileK / 16;
    // Of a slot, in the descriptors' units of 16 bytes.
    const auto offset_of = [&](int slot) {
      return static_cast<std::uint32_t>(warp_uniform(slot) * (kConfig.stage_bytes() / 16));
    };
    const auto multiply = [&](auto& sums, std::uint32_t offset, bool accumulate, int from, int to) {
      wgmma_detail::multiply<Element, Config>(sums, base_a + offset, base_b + offset, accumulate, from, to);
    };
    constexpr bool kMayPair = kConfig.may_multicast(), kAlone = kConsumerWarps == 4;
    const std::uint32_t empty_local = ptx::shared_address(pipeline.empty),
                        empty_pair = kAlone && multicast && lane < 2
                                         ? ptx::remote_address(pipeline.empty, static_cast<unsigned>(lane))
                                         : 0;
    const auto release = [&](int slot, bool really) {
      if constexpr (kAlone) {  // predicated: branches between products are slow
        ptx::barrier_arrive_if(empty_local + 8 * static_cast<unsigned>(slot), really && !multicast && lane == 0);
        if constexpr (kMayPair)
          ptx::barrier_arrive_remote_if(empty_pair + 8 * static_cast<unsigned>(slot), really && empty_pair != 0);
      } else if (really) {
        if (multicast) {
          if (lane < 2) ptx::barrier_arrive(&pipeline.empty[slot], static_cast<unsigned>(lane));
        } else if (lane == 0) {
          pipeline.release(slot);
        }
      }
    };

    PipelineState<kStages> state;
    // Sums the products of the next `count` (at least 1) slots from zero. `stagger`: consumer 2 starts one k-block after
    // consumer 1.
    const auto sum_blocks = [&](auto& result, int count, bool stagger) {
      if constexpr (kParts == 1) {
        // The wait for and the release of slots lie between a slot's two groups of products, so that a lone consumer keeps the
        // tensor cores busy.
        constexpr int kHead = kAlone ? 2 : kSteps;
        int previous = 0;
        bool landed = false;
        for (int done = 0; done < count; ++done) {
          const std::uint32_t offset = offset_of(state.slot);
          if (!landed) pipeline.wait(state);
          ptx::wgmma_fence();
          multiply(result, offset, done > 0, 0, kHead);
          ptx::wgmma_wait<1>();  // the previous slot's products are done
          release(previous, done > 0);
          previous = state.slot;
          state.advance();
          if constexpr (kHead < kSteps) {
            landed = pipeline.ready(state);
            multiply(result, offset, true, kHead, kSteps);
          }
        }
        ptx::wgmma_wait<0>();
        ptx::wgmma_pin(result);
        release(previous, true);
      } else {
        float sums[kAccumulators];
#pragma unroll
        for (int i = 0; i < kAccumulators; ++i) result[i] = 0;
        if (stagger && consumer == 1) ptx::named_barrier_sync(wgmma_detail::kStaggerBarrier, kConsumerThreads);
        for (int done = 0; done < count; ++done) {
          pipeline.wait(state);
          const std::uint32_t offset = offset_of(state.slot);
          ptx::wgmma_fence();
          multiply(sums, offset, false, 0, kSteps);
          ptx::wgmma_wait<0>();
          release(state.slot, true);
          state.advance();
          if (stagger && consumer == 0 && done == 0) ptx::named_barrier_arrive(wgmma_detail::kStaggerBarrier, kConsumerThreads);
          ptx::wgmma_pin(sums);
#pragma unroll
          for (int i = 0; i < kAccumulators; ++i) result[i] = wgmma_detail::promoted(sums[i], result[i]);
        }
      }
    };

    // Of the item's number in this CTA, by a division: a counter would occupy a register through the main loop.
    [[maybe_unused]] const auto parity_of = [&](int index) {
      return static_cast<unsigned>(g.schedule.at_a_time.divide(index) & 1);
    };
    [[maybe_unused]] const auto release_inputs = [&] {
      __syncwarp();
      if (ptx::elect_one()) filled.release(0);
    };
    start();
    for (int index = first_item(); index < g.schedule.items; index += item_step) {
      const auto item = wgmma_detail::item_at<Config>(g, index, rank, blocks);
      const int begin = item.begin, end = item.end;
      const auto tile = wgmma_detail::locate<Config>(g, item.tile, pair_rank());
      float total[kAccumulators];
      if constexpr (kParts == 1) {
        const auto slots_of = [&](int count) { return (count + kConfig.blocks - 1) / kConfig.blocks; };
        const int count = slots_of(kConfig.may_split() ? min(g.k.split_blocks, end - begin) : end - begin);
        sum_blocks(total, count, false);
        if constexpr (kConfig.may_split()) {
          for (int block = begin + g.k.split_blocks; block < end; block += g.k.split_blocks) {  // one CTA sums all splits
            float part[kAccumulators];
            sum_blocks(part, slots_of(min(g.k.split_blocks, end - block)), false);
#pragma unroll
            for (int i = 0; i < kAccumulators; ++i) total[i] += part[i];
          }
        }
      } else {
        // One consumer promotes and stores while the other multiplies. With fewer blocks than slots, consumer 1 could be two
        // items ahead at the barrier; from kStages blocks on, the ring holds it back.
        bool stagger = kConfig.consumers() == 2 && end - begin >= kStages;
#pragma unroll
        for (int i = 0; i < kAccumulators; ++i) total[i] = 0;
        for (int block = begin; block < end; block += g.k.chunk_blocks) {
          float sums[kAccumulators];
          sum_blocks(sums, min(g.k.chunk_blocks, end - block), stagger);
          stagger = false;
#pragma unroll
          for (int i = 0; i < kAccumulators; ++i) total[i] += sums[i];
        }
      }
      if constexpr (kConfig.may_split()) {
        if (cluster > 1) {
          wgmma_detail::reduce_in_cluster<Out, Config>(total, g, tile, item.split, thread, slots, arrived, parity_of(index),
                                                       merged);
          continue;
        }
      }
      const int again = thread_index();
      if constexpr (kConfig.may_split_memory()) {
        if (g.memory_splits > 1) {
          wgmma_detail::reduce_in_memory<Out, Config>(total, g, tile, item, index + item_step >= g.schedule.items, again - 128,
                                                      share);
          continue;
        }
      }
      const int store_lane = again % 32, store_warp = again / 32 - 4;
      if constexpr (kConfig.gated) {
        wgmma_detail::store_gated<Out, Config>(total, g, tile, store_warp, store_lane, staging);
      } else {
        const int row = tile.row + store_warp * 16;
        unsigned char* const own_staging = staging + store_warp * kConfig.staging_bytes();
        const bool shared_scales = kConfig.fills_scales() || g.fills_bias;  // cluster is 1 here
        if (shared_scales) filled.wait({0, parity_of(index)});
        wgmma_detail::store_tile<Out, Config>(total, g, row, tile.column, tile.batch, store_lane, own_staging, inputs,
                                              store_warp * 16);
        if (shared_scales) release_inputs();
      }
    }
    if (ptx::elect_one()) ptx::tma_store_wait_read<0>();  // shared memory must outlive the stores' reads
  }
#endif
}

}  // namespace xgemm::matmul
