// bf16x3: fp32 product on Hopper's tensor cores (sm_90a) in one launch, out = epilogue(A B) as epilogue/apply.cuh says. Operands
// are split into three bf16 parts on the way to the tensor cores: no pass over them, no scaling, no copy in memory.
//
//   Operands  fp32, any strides. TMA loads B where base and strides are multiples of 16 bytes. Sizes < 2^31.
//   Parts     x = hi + mid + lo (parts.cuh). Six products; what is dropped is under 2^-24 of |A||B|. Inf and NaN as in fp32.
//   Roles     Warpgroups 0 and 1 load B and split A; 2 and 3 split B in registers (fragments.cuh) and multiply (accumulate.cuh):
//             C^T = B^T A^T, 64 columns of C each. The fallback computes what fp16 parts cannot represent (fallback.cuh).
//   Order     of additions: scheduler.cuh. It depends on M, and is the same in every run.
//
// Floors: 6 products of 2 M N K flop at 4096 per cycle and SM; bytes of A, B and C once. Design: docs/matmul.md.
#pragma once
#include "device/ptx/cp_async.cuh"
#include "device/ptx/grid.cuh"
#include "device/ptx/tma.cuh"
#include "device/ptx/warpgroup.cuh"
#include "matmul/bf16x3/accumulate.cuh"
#include "matmul/bf16x3/exact.cuh"
#include "matmul/bf16x3/fallback.cuh"
#include "matmul/bf16x3/panels.cuh"
#include "matmul/bf16x3/store.cuh"

namespace xgemm::matmul {

namespace bf16x3 {

template <class Config>
__device__ __forceinline__ void run(const Bf16x3Arguments& g) {
  constexpr Bf16x3Config kConfig = Config::kValue;
  using Memory = Shared<Config>;
  constexpr bool kKMajorB = kConfig.k_major_b;
  constexpr int kRows = kConfig.rows, kSlotsB = Memory::kSlotsB, kSums = kRows / 2;
  constexpr bool kFallback = kConfig.fallback, kShort = kConfig.short_k;
  const bool tma = g.tma || false;  // "|| false", here and below: else ptxas spills two registers of bf16x3_64x128
  constexpr int kPitch = Memory::kPitch, kAlong = Memory::kAlong;
  constexpr int kRoundRows = kProducers / 4;

  extern __shared__ unsigned char shared_memory[];
  unsigned char* const slots_b = shared_memory + swizzle_padding(shared_memory);
  unsigned char* const slots_a = slots_b + kSlotsB * kSlotBytesB;
  float* const stages = reinterpret_cast<float*>(slots_a + kSlotsA * Memory::kSlotBytesA);
  const Pipeline<kSlotsB> pipeline_b{reinterpret_cast<ptx::Barrier*>(
      reinterpret_cast<unsigned char*>(stages) + 2 * Memory::kStageBytes + Memory::kAhead * Memory::kCopyBytes)};
  const Pipeline<kSlotsA> pipeline_a{pipeline_b.empty + kSlotsB};
  std::uint32_t* const lost_a = reinterpret_cast<std::uint32_t*>(pipeline_a.empty + kSlotsA);  // [slot][splitting warp]
  MeetingShare* const shares = reinterpret_cast<MeetingShare*>(lost_a + 8 * kSlotsA);          // [consumer]
  Fallback& fallback = *reinterpret_cast<Fallback*>(shares + 2);

  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    pipeline_b.init(tma ? 1 : kProducers, tma ? kConsumerWarps : kConsumerWarps * 32);
    pipeline_a.init(kProducerWarps, kConsumerWarps);
    ptx::fence_barrier_init();
    if (tma) ptx::prefetch_tensor_map(&g.b);
  }
  __syncthreads();
  ptx::grid_wait();
  ptx::grid_release();
  if constexpr (kFallback)
    if (!list_tiles<Config>(g, fallback)) return;

  const Problem& p = g.problem;
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k_size = static_cast<int>(p.k);

  if (warp_of_role() < kProducerWarps) {
    ptx::release_registers<kProducerRegisters>();
    const int warp = warp_of_role();
    // B's block t - kSlotsA + kSlotsB is loaded when A's slot for block t is free: then the consumers are past block t - kSlotsA.
    Scheduler<Config> work_b(g, fallback);
    PipelineState<kSlotsB> state_b;
    const bool loads = !tma || threadIdx.x == 0;
    auto at_b = work_b.origin();
    const auto load_b = [&] {
      if (!loads || work_b.done()) return;
      const int k0 = work_b.block * kBlock;
      unsigned char* const target = slots_b + state_b.slot * kSlotBytesB;
      ptx::Barrier* const landed = pipeline_b.acquire(state_b);
      if (tma) {
        ptx::barrier_arrive_expect(landed, kSlotBytesB);
#pragma unroll
        for (int i = 0; i < (kKMajorB ? 2 : 4); ++i) {
          if constexpr (kKMajorB)
            ptx::tma_load(target + i * 16384, &g.b, landed, k0 + 32 * i, at_b.column, at_b.batch * g.batch_step_b);
          else
            ptx::tma_load(target + i * 8192, &g.b, landed, at_b.column + 32 * i, k0, at_b.batch * g.batch_step_b);
        }
      } else {
        PanelCopy<Config>{p, warp, lane, n, k_size}(target, at_b, k0);
        ptx::barrier_arrive_copies(landed);
      }
      state_b.advance();
      if (++work_b.block == work_b.end) {
        work_b.advance();
        at_b = work_b.origin();
      }
    };
    for (int i = 0; i < kSlotsB - kSlotsA; ++i) load_b();

    // A, in units of 4 rows by 4 of k.
    constexpr int kUnits = Memory::kUnits, kAhead = Memory::kAhead;
    const int thread = static_cast<int>(threadIdx.x);
    unsigned char* const copies = reinterpret_cast<unsigned char*>(stages) + 2 * Memory::kStageBytes + thread * 16;
    // If A is contiguous along k, a half warp takes 64 k of a row; else a warp takes 16 rows by 32 of k. Both have few bank
    // conflicts. Each round is kRoundRows rows further.
    const int unit_row = g.a_along_k ? thread / 16 * 4 : (thread % 4 + thread / 64 * 4) * 4;
    const int unit_k = g.a_along_k ? thread % 16 * 4 : (thread / 4 % 8 + thread / 32 % 2 * 8) * 4;
    const int rounds = (kUnits - thread + kProducers - 1) / kProducers;
    const auto copy_of = [&](int stage, int round, int x) {
      return copies + (stage * 4 + x) * kUnits * 16 + round * kProducers * 16;
    };
    // Four copies of four elements each: `inner` runs along the contiguous dim.
    const std::int64_t inner_stride = g.a_along_k ? p.a.col_stride : p.a.row_stride;
    const std::int64_t outer_stride = g.a_along_k ? p.a.row_stride : p.a.col_stride;
    const float* const nowhere = static_cast<const float*>(p.a.data);
    Scheduler<Config> work_a(g, fallback);
    const float* from = nowhere;
    int rows_left = 0;
    const auto open = [&] {
      const auto at = work_a.origin();
      from = nowhere + batch_offset(p, p.a, at.batch) + (at.row + unit_row) * p.a.row_stride +
             (static_cast<std::int64_t>(work_a.block) * kBlock + unit_k) * p.a.col_stride;
      rows_left = m - at.row - unit_row;
    };
    open();
    int left = 0;  // blocks that are copied and not yet split
    const auto copy_block = [&](int stage) {
      if (!work_a.done()) {
        ++left;
        const int depth = k_size - work_a.block * kBlock - unit_k;
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
        if (++work_a.block == work_a.end) {
          work_a.advance();
          if (!work_a.done()) open();
        }
      }
      cp_async_commit();  // an empty group too: the wait counts groups
    };
    // Fallback: exponents that lift the rows of the thread's one unit.
    unsigned blocks_split = 0;
    static_assert(!kFallback || kUnits == kProducers);
    const auto lifts_here = [&]() -> std::uint32_t& {
      return reinterpret_cast<std::uint32_t*>(fallback.lifts[warp])[unit_row / 4 % 4];
    };
    const auto find_lifts = [&] {
      const unsigned tile = blocks_split / g.blocks;
      if (blocks_split++ != tile * g.blocks) return;
      const auto at = tile_origin<Config>(g, g.list[tile * gridDim.x + blockIdx.x]);
      const std::uint32_t lifts = row_lifts(g, at, unit_row, m);
      __syncwarp();
      if (g.a_along_k ? lane % 16 == 0 : lane < 4) lifts_here() = lifts;
      __syncwarp();
    };
    const auto split_block = [&](int stage, unsigned char* target, auto along_k) {
      std::uint32_t lost = 0;
#pragma unroll 1
      for (int round = 0; round < rounds; ++round) {
        Vector<float, 4> v[4];
#pragma unroll
        for (int x = 0; x < 4; ++x) v[x] = *reinterpret_cast<const Vector<float, 4>*>(copy_of(stage, round, x));
        if (kFallback && fallback.lifts_any) lift_unit(v, along_k, lifts_here());
        split_unit<Config>(v, along_k, target, unit_row + round * kRoundRows, unit_k, lost);
      }
      return lost;
    };
    for (int stage = 0; stage < kAhead; ++stage) copy_block(stage);
    PipelineState<kSlotsA> state;
    for (int stage = 0; left > 0; state.advance(), stage = stage + 1 == kAhead ? 0 : stage + 1) {
      cp_async_wait<kAhead - 1>();  // waits for this thread's copies; no other thread reads them
      unsigned char* const target = slots_a + state.slot * Memory::kSlotBytesA;
      ptx::Barrier* const written = pipeline_a.acquire(state);
      load_b();
      if constexpr (kFallback)
        if (fallback.lifts_any) find_lifts();
      const std::uint32_t lost =
          g.a_along_k ? split_block(stage, target, std::true_type{}) : split_block(stage, target, std::false_type{});
      ptx::fence_async_shared();
      const bool any = __any_sync(kFullWarp, any_lost(lost));
      if (lane == 0) {
        lost_a[state.slot * 8 + warp] = any;
        ptx::barrier_arrive(written);
      }
      --left;
      copy_block(stage);
    }
  } else {
    ptx::acquire_registers<kConsumerRegisters>();
    using Layout = ptx::OperandLayout<true, 128, 0>;
    const int consumer = warp_of_role() / 4 - 2;
    const int barrier = kConsumerBarrier + consumer;
    float* const stage = stages + consumer * kStageRows * kPitch;
    unsigned char* const column_lifts = fallback.lifts[kProducerWarps] + consumer * 64;
    const std::uint64_t base_a = Layout::descriptor(ptx::shared_address(slots_a));
    PipelineState<kSlotsA> state_a;
    PipelineState<kSlotsB> state_b;
    constexpr bool kKeepsOffset = !kShort;  // ptxas has no register for it in the others
    const std::uint32_t kept_offset = kKeepsOffset ? SlotReader<Config>::first_offset() : 0;
    const auto first_of_slot = [&] {
      return ptx::shared_address(slots_b) + static_cast<unsigned>(state_b.slot * kSlotBytesB) +
             (kKeepsOffset ? kept_offset : SlotReader<Config>::first_offset());
    };
    // All lanes arrive if threads refill the slot by cp.async: racecheck does not follow reads through __syncwarp().
    const auto release = [&](ptx::Barrier& barrier, int arriving) {
      __syncwarp();
      if (lane < arriving) ptx::barrier_arrive(&barrier);
    };

    // The warpgroups take turns at the tensor cores: one splits and promotes while the other multiplies.
    if (consumer == 1) ptx::named_barrier_arrive(kPingPongBarrier, 256);
    Fragments fragments;
    for (Scheduler<Config> work(g, fallback); !work.done(); work.advance()) {
      float total[kSums], small[kSums] = {};  // sums of hi hi; of small products and of what promotion rounds off
      if constexpr (kFallback)
        if (fallback.lifts_any) find_column_lifts<Config>(g, column_lifts, work, consumer, n);
#pragma unroll
      for (float& x : total) x = 0;
      std::uint32_t lost = 0;
      const bool last_tile = work.unit + work.taken >= work.last;
      // kHalves: a tile's first block, of which every other step's products of hi hi are summed in `total`.
      const auto add_block = [&](int block, auto kHalves) {
        pipeline_b.wait(state_b);
        if (kFallback && fallback.lifts_any) {
          const FragmentPlace<Config> place;
          const float first = __int_as_float(column_lifts[place.first] << 23),
                      second = __int_as_float(column_lifts[place.second] << 23);
          lost |= SlotReader<Config>::template split<kFallback>(fragments, first_of_slot(), first, second);
        } else {
          lost |= SlotReader<Config>::template split<false>(fragments, first_of_slot(), 1.f, 1.f);
        }
        // No proxy fence: TMA refills the slot only after A's slot of this block is released, so after the fragments' products.
        release(pipeline_b.empty[state_b.slot], g.tma || false ? 1 : 32);
        state_b.advance();
        pipeline_a.wait(state_a);
        ptx::named_barrier_sync(kPingPongBarrier + consumer, 256);
        float large[kSums];
        const std::uint64_t slot_a = base_a + static_cast<unsigned>(state_a.slot * (Memory::kSlotBytesA / 16));
        pin(fragments);
        ptx::wgmma_fence();
        multiply<Config, kHalves()>(fragments, slot_a, total, small, large);
        if (consumer == 0 || block + 1 < work.end || !last_tile) ptx::named_barrier_arrive(kPingPongBarrier + 1 - consumer, 256);
        if (lane == 0) {  // the lane that releases the slot
#pragma unroll
          for (int i = 0; i < kProducerWarps; ++i) lost |= lost_a[state_a.slot * 8 + i];
        }
        ptx::wgmma_wait<0>();
        ptx::wgmma_pin(small);
        ptx::wgmma_pin(large);
        if constexpr (kHalves()) ptx::wgmma_pin(total);
        pin(fragments);  // alive until here: the tensor cores read them
        release(pipeline_a.empty[state_a.slot], 1);
        state_a.advance();
        promote<kHalves()>(total, small, large);
        if (!kShort && static_cast<unsigned>(block) % kFlush == kFlush - 1) flush(total, small);
      };
      if constexpr (kShort) {
        add_block(0, std::true_type{});
        if (work.end > 1) add_block(1, std::false_type{});
      } else {
        for (int block = work.block; block < work.end; ++block) add_block(block, std::false_type{});
      }
#pragma unroll
      for (int i = 0; i < kSums; ++i) total[i] += finite_part(small[i]);

      // A sum may overflow only because hi was rounded up.
      float finite = 0;
#pragma unroll
      for (const float x : total) finite = fmaf(x, 0.f, finite);
      const FragmentPlace<Config> place;
      const auto at = work.origin();
      const int rows = min(kRows, m - at.row), column0 = at.column + consumer * 64, columns = min(64, n - column0);
      if (isnan(finite)) {
        if constexpr (kFallback) {
          find_overflow<Config>(total, g, place, at, column0, rows, n, lost);
        } else {
          lost = 1;
        }
      }
      if constexpr (kFallback)
        if (fallback.lifts_any) undo_lifts<Config>(total, g, column_lifts, place, at, rows);
      if (ptx::named_barrier_or(barrier, 128, any_lost(lost)))
        redo_sums<Config>(total, g, fallback, work, place, at, rows, columns, column0, stage, barrier);
      const float alpha = static_cast<float>(p.alpha);
      // The thread's quads of C: a staged line is a row of C, of which kLanes threads have a quad each.
      constexpr int kLanes = kAlong / 4, kStep = 128 / kLanes;
      const int along = place.lane % kLanes * 4, first_line = place.warp * (32 / kLanes) + place.lane / kLanes;
      float* const out = static_cast<float*>(p.out) + (static_cast<std::int64_t>(at.batch) * m + at.row) * n + column0;
      const QuadStore<Config> store{g, fallback, alpha, at.batch, at.row, column0, columns, n, out};
      // A split tile is its first CTA's last one and the others' first one.
      unsigned first_cta = 0, last_cta = 0;
      if (!work.whole()) {
        const unsigned tile_unit = work.unit / g.units * g.units;
        first_cta = work.owner(tile_unit), last_cta = work.owner(tile_unit + g.units - 1);
      }
      // Partial sums, kStageRows rows at a time, in the layout of shared memory.
      const auto partial = [&](unsigned cta, int line) {
        return g.partials + static_cast<std::size_t>((2 * cta + (cta == first_cta)) * 2 + consumer) * (kRows * 64) +
               line * kAlong + along;
      };
#pragma unroll
      for (int row0 = 0; row0 < kRows; row0 += kStageRows) {
        if (row0 >= rows) break;
#pragma unroll
        for (int j = 0; j < kStageRows / 8; ++j) {
          const float* const x = total + row0 / 2 + 4 * j;  // columns first and second of rows 8 j + 2 quad and the next
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            float* const row = stage + (8 * j + 2 * place.quad + c) * kPitch;
            if constexpr (kKMajorB) {
              row[place.first] = x[c];
              row[place.second] = x[2 + c];
            } else {
              store_vector(row + place.first, Vector<float, 2>{{x[c], x[2 + c]}});
            }
          }
        }
        ptx::named_barrier_sync(barrier, 128);
        if (along < columns) {
#pragma unroll 1
          for (int line = first_line; line < min(kStageRows, rows - row0); line += kStep) {
            const auto sum = load_vector<4>(stage + line * kPitch + along);
            if (!work.whole())
              store_vector(partial(blockIdx.x, row0 + line), sum);
            else
              store(row0 + line, along, sum);
          }
        }
        ptx::named_barrier_sync(barrier, 128);
      }
      if (!Scheduler<Config>::kWhole && !work.whole()) {
        // Few CTAs: the last to arrive adds the partial sums, one row per half warp. Many CTAs share the addition, one row per
        // CTA at a time: each half warp adds an eighth of the partial sums, then one half warp adds the eighths in order. A CTA
        // with another tile does not wait, so that no CTA waits for a waiting one.
        const int splits = static_cast<int>(last_cta - first_cta) + 1, eighth = splits > kBf16x3FewPieces ? (splits + 7) / 8 : 0;
        if (threadIdx.x % 128 == 0)
          shares[consumer] =
              meet(g.meetings[2 * first_cta + consumer], last_cta - first_cta + 1, eighth && work.unit + work.taken >= work.last);
        ptx::named_barrier_sync(barrier, 128);
        const int of = static_cast<int>(shares[consumer].of), rank = static_cast<int>(shares[consumer].rank);
        if (of > 0) {
#pragma unroll 1
          for (int line = eighth ? rank : first_line; line < rows; line += eighth ? of : kStep) {
            const unsigned from = first_cta + static_cast<unsigned>(eighth ? first_line * eighth : 0);
            const unsigned to = eighth ? min(last_cta, from + static_cast<unsigned>(eighth) - 1) : last_cta;
            Vector<float, 4> sum{};
#pragma unroll 1
            for (unsigned cta = from; cta <= to && along < columns; cta += 4) {
              float4 parts[4];  // loaded together
#pragma unroll
              for (unsigned i = 0; i < 4; ++i)
                parts[i] = __ldcg(reinterpret_cast<const float4*>(partial(min(cta + i, to), line)));
#pragma unroll
              for (unsigned i = 0; i < 4; ++i) {
                if (cta + i > to) break;
                const Vector<float, 4> v{{parts[i].x, parts[i].y, parts[i].z, parts[i].w}};
#pragma unroll
                for (int j = 0; j < 4; ++j) sum[j] = cta + i == from ? v[j] : sum[j] + v[j];
              }
            }
            if (eighth) {
              __syncwarp();
              ptx::named_barrier_sync(barrier, 128);
              store_vector(stage + first_line * kPitch + along, sum);
              ptx::named_barrier_sync(barrier, 128);
              if (first_line == 0) {
                for (int i = 1; i < 8; ++i) {
                  const auto more = load_vector<4>(stage + i * kPitch + along);
#pragma unroll
                  for (int j = 0; j < 4; ++j) sum[j] += more[j];
                }
              }
              __syncwarp();
            }
            if (along < columns && (!eighth || first_line == 0)) store(line, along, sum);
            if (eighth) __syncwarp();
          }
        }
        if (threadIdx.x % 128 == 0) depart(g.meetings[2 * first_cta + consumer], last_cta - first_cta + 1);
      }
    }
  }
}

}  // namespace bf16x3

template <class Config>
__global__ void __launch_bounds__(32 * bf16x3::kWarps, 1) bf16x3_gemm(const __grid_constant__ Bf16x3Arguments g) {
  static_assert(!Config::kValue.fallback);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  bf16x3::run<Config>(g);
#endif
}

/// Computes the elements that a product in fp16 parts leaves (fallback.cuh).
template <class Config>
__global__ void __launch_bounds__(32 * bf16x3::kWarps, 1) bf16x3_fallback(const __grid_constant__ Bf16x3Arguments g) {
  static_assert(Config::kValue.fallback);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  bf16x3::run<Config>(g);
#endif
}

}  // namespace xgemm::matmul
