// Few rows times a half-precision B that TMA cannot load (odd strides, any base), which is read once, as it lies (sm_90a).
//
//   Work      A CTA has one item: 64 rows by tile_n columns of C, or its part of K in a cluster (kernels/wgmma_gemm.cuh: Splits).
//   Roles     Warpgroup 0 multiplies (wgmma m64 x tile_n). The next warpgroups bring B and take turns in slots: each thread asks
//             for the aligned 16-byte blocks that hold its pieces, shifts them and writes them where TMA's swizzle would. One
//             more warp brings A by TMA: K-major, a copy of the few rows where it must be.
//   Operands  B contiguous along k or along n. Nothing outside it is read: shifted_piece.cuh.
//   Order     and epilogue are those of kernels/wgmma_gemm.cuh: a row's bits are equal, whichever of the two is taken.
//   Launch    The loaders of B start while the kernel that copies A still runs: whatever came before that one has ended.
//
// Floor: B's bytes. Measured: two to three times that (docs/log/matmul.md).
#pragma once
#include "matmul/kernels/shifted_piece.cuh"
#include "matmul/kernels/wgmma_gemm.cuh"

namespace xgemm::matmul {

struct FewRowsArguments {
  WgmmaArguments g;  ///< its maps of b and up are not used
  const std::uint16_t *b, *b_end;
  std::int64_t b_stride;  ///< of lines: columns where B is contiguous along k, else rows
  bool after_copy;        ///< the kernel before this one copies A: B need not wait for it
};

template <class Element, class Out, class Config>
__global__ void __launch_bounds__(Config::kThreads, 1) few_rows(const __grid_constant__ FewRowsArguments f) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr WgmmaConfig kConfig = Config::kValue;
  constexpr int kGroups = Config::kGroups, kTileN = kConfig.tile_n, kStages = kConfig.stages,
                kSlotK = kConfig.blocks * kWgmmaTileK;
  // Of a k-block; rows along n are 128 bytes apart, also where a tile has 32 columns.
  constexpr int kBytesA = 64 * 128, kBytesB = (kConfig.k_major_b ? kTileN : kWgmmaTileK) * 128;
  constexpr int kSlotBytes = kConfig.blocks * (kBytesA + kBytesB), kPieceBytes = kSlotK * 128;
  const WgmmaArguments& g = f.g;

  extern __shared__ unsigned char shared_memory[];
  unsigned char* const slots =
      shared_memory + ((1024 - (ptx::shared_address(shared_memory) & 1023)) & 1023);  // the swizzle is a pattern of 1024 bytes
  ptx::Barrier* const full = reinterpret_cast<ptx::Barrier*>(slots + kStages * kSlotBytes);
  ptx::Barrier* const empty = full + kStages;
  ptx::Barrier* const merged = empty + kStages;

  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      ptx::barrier_init(&full[s], 4 + 1);  // a group's warps, and A
      ptx::barrier_init(&empty[s], 4);
    }
    ptx::barrier_init(merged, 4);
    ptx::fence_barrier_init();
    ptx::prefetch_tensor_map(&g.a);
    if (g.boxes && !g.ragged) ptx::prefetch_tensor_map(&g.out);
  }
  __syncthreads();
  if (g.cluster > 1) ptx::cluster_sync();

  const int blocks = static_cast<int>((g.problem.k + kWgmmaTileK - 1) / kWgmmaTileK);
  const int index = static_cast<int>(blockIdx.x) / g.cluster, rank = static_cast<int>(blockIdx.x) - index * g.cluster;
  const auto tile = wgmma_detail::locate<Config>(g, index);
  // Of the k-blocks, this CTA does [begin, end), in parts of g.split_blocks.
  const int begin = g.cluster > 1 ? min(blocks, rank * g.split_blocks) : 0,
            end = g.cluster > 1 ? min(blocks, begin + g.split_blocks) : blocks;
  const int count = (end - begin + kConfig.blocks - 1) / kConfig.blocks;  // slots

  if (warp >= 4 * (1 + kGroups)) {
    ptx::grid_wait();
    ptx::grid_release();
    if (ptx::elect_one()) {
      for (int s = 0; s < count; ++s) {
        const int slot = s % kStages;
        unsigned char* const target = slots + slot * kSlotBytes;
        ptx::barrier_wait(&empty[slot], (s / kStages & 1) ^ 1);
        ptx::barrier_arrive_expect(&full[slot], static_cast<unsigned>(g.slot_bytes));
#pragma unroll
        for (int i = 0; i < kConfig.blocks; ++i)
          ptx::tma_load(target + i * kBytesA, &g.a, &full[slot], (begin + s * kConfig.blocks + i) * kWgmmaTileK, tile.row,
                        tile.batch * g.batch_step_a);
      }
    }
  } else if (warp >= 4) {
    if (!f.after_copy) ptx::grid_wait();
    constexpr int kLinePieces = kConfig.k_major_b ? kSlotK / 8 : kTileN / 8;  // of a slot
    constexpr int kLines = kConfig.k_major_b ? kTileN : kSlotK, kStep = 128 / kLinePieces, kPieces = kLines / kStep;
    static_assert(kStep % 8 == 0, "a thread's pieces are all shifted and swizzled alike");
    const int group = warp / 4 - 1, thread = static_cast<int>(threadIdx.x) % 128;
    const int piece = thread % kLinePieces, among = thread / kLinePieces;
    // Rows of 64 bytes: eight lanes write rows r and r + 4, which lie in different banks.
    const int line = kLinePieces == 4 ? (among & ~7) + (among & 1) * 4 + (among >> 1 & 3) : among;
    const int n = min(static_cast<int>(g.problem.n), tile.column + g.tile_columns), k_end = static_cast<int>(g.problem.k);
    const int place = kConfig.blocks * kBytesA + piece / 8 * (kConfig.k_major_b ? kBytesB : kPieceBytes) + line * 128 +
                      ((piece ^ line) & 7) * 16;
    const std::int64_t step = kStep * f.b_stride;
    const auto at = [&](int k) {
      const int first = kConfig.k_major_b ? k + 8 * piece : tile.column + 8 * piece,
                other = (kConfig.k_major_b ? tile.column : k) + line;
      return other * f.b_stride + first;
    };
    const std::uint16_t* from = f.b + batch_offset(g.problem, g.problem.b, tile.batch) + at(begin * kWgmmaTileK);
    const std::int64_t advance = at(kGroups * kSlotK) - at(0);
    from += at(group * kSlotK) - at(0);
    const unsigned shift = misalignment(from);
    for (int s = group; s < count; s += kGroups, from += advance) {
      const int slot = s % kStages, k = begin * kWgmmaTileK + s * kSlotK;
      const int left = (kConfig.k_major_b ? k_end - k : n - tile.column) - 8 * piece,
                lines = (kConfig.k_major_b ? n - tile.column : k_end - k) - line;
      const auto elements = [&](int j) { return kStep * j < lines ? min(left, 8) : 0; };
      // All of the warp's pieces, and the blocks behind them, are in B: the rule.
      const char* const q = reinterpret_cast<const char*>(from) - shift;
      const bool whole = __all_sync(0xffffffffu, left >= 8 && lines > kStep * (kPieces - 1) &&
                                                     q + 2 * (kPieces - 1) * step + 32 <= reinterpret_cast<const char*>(f.b_end));
      ShiftedPiece<std::uint16_t> pieces[kPieces];
      if (whole) {
#pragma unroll
        for (int j = 0; j < kPieces; ++j) pieces[j] = {load_aligned16(q + 2 * j * step), load_aligned16(q + 2 * j * step + 16)};
      } else {
#pragma unroll
        for (int j = 0; j < kPieces; ++j) pieces[j].load(from + j * step, elements(j), f.b_end);
      }
      ptx::barrier_wait(&empty[slot], (s / kStages & 1) ^ 1);
      unsigned char* const target = slots + slot * kSlotBytes + place;
      if (whole) {
#pragma unroll
        for (int j = 0; j < kPieces; ++j)
          *reinterpret_cast<uint4*>(target + j * kStep * 128) = shift_bytes(pieces[j].low, pieces[j].high, shift);
      } else {
#pragma unroll
        for (int j = 0; j < kPieces; ++j)
          *reinterpret_cast<uint4*>(target + j * kStep * 128) = pieces[j].value(shift, elements(j));
      }
      ptx::fence_async_shared();
      __syncwarp();
      if (lane == 0) ptx::barrier_arrive(&full[slot]);
    }
  } else {
    using LayoutA = ptx::OperandLayout<true, 128, kPieceBytes>;
    using LayoutB = ptx::OperandLayout<kConfig.k_major_b, 128, kPieceBytes>;
    using Instruction = ptx::Wgmma<Element, true, kConfig.k_major_b>;
    const std::uint64_t base_a = LayoutA::descriptor(ptx::shared_address(slots));
    const std::uint64_t base_b = LayoutB::descriptor(ptx::shared_address(slots) + kConfig.blocks * kBytesA);
    int s = 0;
    const auto release = [&](int slot) {
      if (lane == 0) ptx::barrier_arrive(&empty[slot]);
    };
    // The next `wanted` slots, from zero.
    const auto sum_slots = [&](float(&sums)[kTileN / 2], int wanted) {
      for (int done = 0; done < wanted; ++done, ++s) {
        const int slot = s % kStages;
        ptx::barrier_wait(&full[slot], s / kStages & 1);
        const std::uint64_t offset = static_cast<unsigned>(slot * (kSlotBytes / 16));
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < kSlotK / 16; ++step) {
          const int at_a = step / 4 * kBytesA + step % 4 * LayoutA::kStepBytes;
          const int at_b = kConfig.k_major_b ? step / 4 * kBytesB + step % 4 * LayoutB::kStepBytes : step * LayoutB::kStepBytes;
          Instruction::mma(sums, base_a + offset + at_a / 16, base_b + offset + at_b / 16, done > 0 || step > 0);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        if (done > 0) release((s - 1) % kStages);
      }
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(sums);
      release((s - 1) % kStages);
    };
    const auto slots_of = [&](int k_blocks) { return (k_blocks + kConfig.blocks - 1) / kConfig.blocks; };
    float total[kTileN / 2];
    sum_slots(total, slots_of(min(g.split_blocks, end - begin)));
    for (int block = begin + g.split_blocks; block < end; block += g.split_blocks) {
      float part[kTileN / 2];
      sum_slots(part, slots_of(min(g.split_blocks, end - block)));
#pragma unroll
      for (int i = 0; i < kTileN / 2; ++i) total[i] += part[i];
    }
    if (g.cluster > 1) {
      wgmma_detail::merge_tile<Out, Config>(total, g, tile.row, tile.column, tile.batch, rank, static_cast<int>(threadIdx.x),
                                            slots, merged);
    } else {
      constexpr int kStaging = WgmmaBoxes<Config>::kStagingBytes;
      int* const bias = reinterpret_cast<int*>(slots + 4 * kStaging);
      ptx::named_barrier_sync(1, 128);  // no wgmma reads the slots any more: C is staged there
      if (g.shares_bias) {
        if (threadIdx.x < 96) wgmma_detail::fill_bias<Out, Config>(g, tile.column, static_cast<int>(threadIdx.x), bias);
        ptx::named_barrier_sync(1, 128);
      }
      wgmma_detail::store_tile<Out, Config>(total, g, tile.row + warp * 16, tile.column, tile.batch, lane,
                                            slots + warp * kStaging, bias, 0);
      if (lane == 0) ptx::tma_store_wait_read<0>();
    }
  }
  if (warp >= 4 && g.cluster > 1) {  // merge_tile's two
    ptx::cluster_sync_warps();
    ptx::cluster_sync_warps();
  }
#endif
}

}  // namespace xgemm::matmul
