// Matrix product on Hopper's tensor cores (sm_90a): half-precision operands, and fp32 operands that kernels/split_fp16.cuh has turned
// into one or two scaled fp16 parts. One persistent, warp-specialised kernel; out = epilogue(A B) as kernels/epilogue.cuh says.
//
//   Work      A CTA owns 128 x tile_n of C at a time and walks its share of the tiles in an order that keeps the operands of the
//             tiles in flight in L2. Warpgroup 0 only loads (TMA), warpgroups 1 and 2 multiply 64 rows each (wgmma m64 x tile_n).
//   Pipeline  `stages` slots of shared memory. full[s] completes when a slot's bytes have landed, empty[s] when every consumer warp
//             is done with it. The pipeline runs across tiles: the next tile's loads start during the epilogue, and C leaves
//             through shared memory by TMA while the next tile is multiplied (kernels/wgmma_epilogue.cuh).
//   Operands  Row- or column-major each. Base and strides multiples of 16 bytes (TMA). Edges of any size: TMA reads zeros outside.
//             Batches are the tensor maps' third dim (broadcast: step 0).
//   Parts     parts = 2: A = (hi, lo), B = (hi, lo); lo*hi, hi*lo, then hi*hi go into one accumulator, small terms first, because the
//             tensor core rounds toward zero at each step; lo*lo is dropped. After each k-block the accumulator is promoted: added
//             to fp32 registers, rounded to nearest, times 1 + 2^-23, which is what truncation has taken off on average (0.9 of
//             it for sums of one sign, 0.5 for random signs: four hi*hi steps, each losing half an ulp of what is there by then).
//   Chunks    K is cut in chunks of chunk_blocks k-blocks; each chunk is summed from zero and the chunks' sums are added in order in
//             fp32. One CTA does all chunks of a tile, or `splits` CTAs share them: then every chunk's sum goes to `partial` and the
//             CTA that finishes last adds them, in the same order. Configurations that are not `chunked` have one chunk.
//   Order     An element's products are added in an order that depends on K, tile_k, parts and chunk_blocks alone: tile_n, the place
//             in the tile and the splits do not change its bits.
//
// Floors: 2 M N K parts' products (1 or 3) over 4096 flop a cycle and SM; per k-block and CTA, shared memory takes the slot's bytes
// from TMA and gives 64 tile_k (A) + tile_n tile_k (B) elements to each consumer's product, at 128 bytes a cycle.
#pragma once
#include "device/ptx/tma.cuh"
#include "device/ptx/warpgroup.cuh"
#include "device/ptx/wgmma.cuh"
#include "matmul/kernels/line_scale.cuh"
#include "matmul/tensor_plan.h"

namespace xgemm::matmul {

/// Compile-time choices of one instantiation: the kernel's parameter is a type with this as its member kValue.
struct WgmmaConfig {
  int tile_n;          ///< columns of C a CTA: 64, 128 or 256
  int stages;          ///< slots
  bool k_major_a;      ///< A row-major
  bool k_major_b;      ///< B column-major
  int group;           ///< rows of tiles walked together before the next column of tiles
  int parts = 1;       ///< 2: operands are hi and lo
  bool scaled = false; ///< operands' lines were scaled by powers of two (line_scale.cuh)
  bool chunked = true; ///< more than one chunk of K is possible: takes registers for the chunks' total
};

inline constexpr int kWgmmaThreads = 384;

struct WgmmaArguments {
  CUtensorMap a, b;  ///< dims (contiguous, other, batch * parts); boxes as WgmmaBoxes says
  CUtensorMap out;   ///< dims (n, m, batch); boxes of 128 bytes by 16 rows
  Problem problem;   ///< sizes and the epilogue's operands; its a and b are not read
  int batch_step_a, batch_step_b;  ///< 0: the operand is one matrix for all batches
  int chunk_blocks, chunks, splits;
  float* partial;      ///< splits > 1: [tile][chunk][accumulator / 4][consumer thread][4]
  unsigned* counters;  ///< splits > 1: [tile], zero before the launch
  const LineStats *lines_a, *lines_b;  ///< scaled: [batch or one][line]
  bool boxes;                          ///< C leaves through `out`: rows start at multiples of 16 bytes, epilogue of alpha and bias only
};

/// The boxes that the kernel's loads move, which the host writes in the tensor maps.
template <class Config>
struct WgmmaBoxes {
  static constexpr WgmmaConfig kConfig = Config::kValue;
  static constexpr int kRowBytes = 128;
  static constexpr int kBoxA[2] = {64, kConfig.k_major_a ? kWgmmaTileM : kWgmmaTileK};
  static constexpr int kBoxB[2] = {64, kConfig.k_major_b ? kConfig.tile_n : kWgmmaTileK};
  static constexpr int kBytesA = kWgmmaTileM * kRowBytes;
  static constexpr int kBytesB = kConfig.tile_n * kRowBytes;
  static constexpr int kStageBytes = kConfig.parts * (kBytesA + kBytesB);
  static constexpr int kStagingBytes = 4096;  // of each consumer warp
  // 1024: alignment of the slots; 16: the flag of the last CTA.
  static constexpr int kSharedBytes = kConfig.stages * kStageBytes + 8 * kStagingBytes + 2 * 8 * kConfig.stages + 16 + 1024;
};

}  // namespace xgemm::matmul

#include "matmul/kernels/wgmma_epilogue.cuh"

namespace xgemm::matmul {
namespace wgmma_detail {

/// Tiles in the order in which they are handed out: column by column inside groups of `group` rows; a tile's splits one after another.
template <class Config>
struct Tiles {
  static constexpr WgmmaConfig kConfig = Config::kValue;
  int rows, columns, splits;
  long long count;

  __device__ __forceinline__ Tiles(const Problem& p, int tile_splits)
      : rows(static_cast<int>((p.m + kWgmmaTileM - 1) / kWgmmaTileM)),
        columns(static_cast<int>((p.n + kConfig.tile_n - 1) / kConfig.tile_n)),
        splits(tile_splits),
        count(static_cast<long long>(rows) * columns * p.batches * tile_splits) {}

  struct Tile {
    long long index;
    int row, column, batch, split;  ///< first row and column of C
  };
  __device__ __forceinline__ Tile locate(long long item) const {
    const long long index = item / splits, per_batch = static_cast<long long>(rows) * columns, batch = index / per_batch;
    const int within = static_cast<int>(index - batch * per_batch);
    const int group = within / (kConfig.group * columns), in_group = within - group * kConfig.group * columns;
    const int height = min(rows - group * kConfig.group, kConfig.group);
    const int column = in_group / height, row = group * kConfig.group + (in_group - column * height);
    return {index, row * kWgmmaTileM, column * kConfig.tile_n, static_cast<int>(batch), static_cast<int>(item - index * splits)};
  }
};

/// Position in the ring of slots: parity flips each time round.
template <int kStages>
struct Ring {
  int slot = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void advance() {
    if (++slot == kStages) {
      slot = 0;
      parity ^= 1;
    }
  }
};

}  // namespace wgmma_detail

template <class Element, class Out, class Config>
__global__ void __launch_bounds__(kWgmmaThreads, 1) wgmma_gemm(const __grid_constant__ WgmmaArguments g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr WgmmaConfig kConfig = Config::kValue;
  using Boxes = WgmmaBoxes<Config>;
  constexpr int kTileN = kConfig.tile_n, kStages = kConfig.stages, kParts = kConfig.parts;
  constexpr int kAccumulators = kTileN / 2, kConsumerWarps = 8, kConsumerThreads = 32 * kConsumerWarps;
  constexpr int kRowBytes = Boxes::kRowBytes, kBlockBytes = kWgmmaTileK * 128;  // of an MN-major block of 64 columns
  constexpr int kStaggerBarrier = 1, kSplitBarrier = 2;
  static_assert(Boxes::kSharedBytes <= 227 * 1024 && Boxes::kStageBytes % 1024 == 0);

  extern __shared__ unsigned char shared_memory[];
  unsigned char* const slots =
      shared_memory + ((1024 - (ptx::shared_address(shared_memory) & 1023)) & 1023);  // the swizzle is a pattern of 1024 bytes
  unsigned char* const staging = slots + kStages * Boxes::kStageBytes;
  ptx::Barrier* const full = reinterpret_cast<ptx::Barrier*>(staging + kConsumerWarps * Boxes::kStagingBytes);
  ptx::Barrier* const empty = full + kStages;
  volatile unsigned* const finished_last = reinterpret_cast<unsigned*>(empty + kStages);

  const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      ptx::barrier_init(&full[s], 1);
      ptx::barrier_init(&empty[s], kConsumerWarps);
    }
    ptx::fence_barrier_init();
    ptx::prefetch_tensor_map(&g.a);
    ptx::prefetch_tensor_map(&g.b);
    if (g.boxes) ptx::prefetch_tensor_map(&g.out);
  }
  __syncthreads();

  const wgmma_detail::Tiles<Config> tiles(g.problem, g.splits);
  const int blocks = static_cast<int>((g.problem.k + kWgmmaTileK - 1) / kWgmmaTileK);
  const int chunks_per_split = (g.chunks + g.splits - 1) / g.splits;
  const auto first_block = [&](int split) { return split * chunks_per_split * g.chunk_blocks; };
  const auto last_block = [&](int split) { return min(blocks, (split + 1) * chunks_per_split * g.chunk_blocks); };

  if (warpgroup == 0) {
    ptx::release_registers<24>();
    if (threadIdx.x < 32 && ptx::elect_one()) {
      wgmma_detail::Ring<kStages> ring;
      for (long long item = blockIdx.x; item < tiles.count; item += gridDim.x) {
        const auto tile = tiles.locate(item);
        const int batch_a = tile.batch * g.batch_step_a * kParts, batch_b = tile.batch * g.batch_step_b * kParts;
        const int end = last_block(tile.split);
        for (int block = first_block(tile.split); block < end; ++block) {
          ptx::Barrier* const landed = &full[ring.slot];
          unsigned char* target = slots + ring.slot * Boxes::kStageBytes;
          const int k = block * kWgmmaTileK;
          ptx::barrier_wait(&empty[ring.slot], ring.parity ^ 1);
          ptx::barrier_arrive_expect(landed, Boxes::kStageBytes);
#pragma unroll
          for (int part = 0; part < kParts; ++part, target += Boxes::kBytesA) {
            if constexpr (kConfig.k_major_a) {
              ptx::tma_load(target, &g.a, landed, k, tile.row, batch_a + part);
            } else {
#pragma unroll
              for (int i = 0; i < kWgmmaTileM / 64; ++i)
                ptx::tma_load(target + i * kBlockBytes, &g.a, landed, tile.row + 64 * i, k, batch_a + part);
            }
          }
#pragma unroll
          for (int part = 0; part < kParts; ++part, target += Boxes::kBytesB) {
            if constexpr (kConfig.k_major_b) {
              ptx::tma_load(target, &g.b, landed, k, tile.column, batch_b + part);
            } else {
#pragma unroll
              for (int i = 0; i < kTileN / 64; ++i)
                ptx::tma_load(target + i * kBlockBytes, &g.b, landed, tile.column + 64 * i, k, batch_b + part);
            }
          }
          ring.advance();
        }
      }
    }
  } else {
    ptx::acquire_registers<240>();
    using LayoutA = ptx::OperandLayout<kConfig.k_major_a, 128, kBlockBytes>;
    using LayoutB = ptx::OperandLayout<kConfig.k_major_b, 128, kBlockBytes>;
    using Instruction = ptx::Wgmma<Element, kConfig.k_major_a, kConfig.k_major_b>;
    const int consumer = warpgroup - 1, thread = static_cast<int>(threadIdx.x) - 128;  // of the consumers
    const int lane = thread % 32, warp = thread / 32 % 4;
    const std::uint64_t base_a = LayoutA::descriptor(ptx::shared_address(slots) + consumer * 64 * kRowBytes);
    const std::uint64_t base_b = LayoutB::descriptor(ptx::shared_address(slots) + kParts * Boxes::kBytesA);
    static_assert(64 * kRowBytes == kBlockBytes);  // the second consumer's rows start there in both layouts

    // All products of one slot, as one committed group. Offsets are in the descriptors' units of 16 bytes.
    const auto multiply = [&](float(&sums)[kAccumulators], int slot, bool accumulate) {
      const std::uint64_t offset = static_cast<unsigned>(slot * (Boxes::kStageBytes / 16));
      ptx::wgmma_fence();
#pragma unroll
      for (int product = kParts == 1 ? 2 : 0; product < 3; ++product) {
        const int part_a = product == 0, part_b = product == 1;  // lo*hi, hi*lo, hi*hi
#pragma unroll
        for (int step = 0; step < kWgmmaTileK / 16; ++step)
          Instruction::mma(sums, base_a + offset + (part_a * Boxes::kBytesA + step * LayoutA::kStepBytes) / 16,
                           base_b + offset + (part_b * Boxes::kBytesB + step * LayoutB::kStepBytes) / 16,
                           accumulate || step > 0 || product != (kParts == 1 ? 2 : 0));
      }
      ptx::wgmma_commit();
    };
    const auto release = [&](int slot) {
      if (lane == 0) ptx::barrier_arrive(&empty[slot]);
    };

    wgmma_detail::Ring<kStages> ring;
    // The next `count` k-blocks, from zero. `stagger`: consumer 2 starts one k-block after consumer 1.
    const auto sum_blocks = [&](float(&result)[kAccumulators], int count, bool stagger) {
      if constexpr (kParts == 1) {
        int previous = 0;
        for (int block = 0; block < count; ++block) {
          ptx::barrier_wait(&full[ring.slot], ring.parity);
          multiply(result, ring.slot, block > 0);
          ptx::wgmma_wait<1>();  // the group before is done, and with it its slot
          if (block > 0) release(previous);
          previous = ring.slot;
          ring.advance();
        }
        ptx::wgmma_wait<0>();
        ptx::wgmma_pin(result);
        release(previous);
      } else {
        float sums[kAccumulators];
#pragma unroll
        for (int i = 0; i < kAccumulators; ++i) result[i] = 0;
        if (stagger && consumer == 1) ptx::named_barrier_sync(kStaggerBarrier, kConsumerThreads);
        for (int block = 0; block < count; ++block) {
          ptx::barrier_wait(&full[ring.slot], ring.parity);
          multiply(sums, ring.slot, false);
          ptx::wgmma_wait<0>();
          release(ring.slot);
          ring.advance();
          if (stagger && consumer == 0 && block == 0) ptx::named_barrier_arrive(kStaggerBarrier, kConsumerThreads);
          ptx::wgmma_pin(sums);
#pragma unroll
          for (int i = 0; i < kAccumulators; ++i) result[i] = fmaf(sums[i], 1.f + 0x1p-23f, result[i]);
        }
      }
    };

    for (long long item = blockIdx.x; item < tiles.count; item += gridDim.x) {
      const auto tile = tiles.locate(item);
      const int begin = first_block(tile.split), end = last_block(tile.split);
      float total[kAccumulators];
      if constexpr (!kConfig.chunked) {
        static_assert(kParts == 1);
        sum_blocks(total, end - begin, false);
      } else {
        // One consumer promotes and stores while the other multiplies. With fewer blocks than slots, consumer 1 could be two items
        // ahead at the barrier; from `stages` blocks on, the ring holds it back.
        bool stagger = kParts == 2 && end - begin >= kStages;
#pragma unroll
        for (int i = 0; i < kAccumulators; ++i) total[i] = 0;
        for (int block = begin; block < end; block += g.chunk_blocks) {
          float sums[kAccumulators];
          sum_blocks(sums, min(g.chunk_blocks, end - block), stagger);
          stagger = false;
          if (g.splits == 1) {
#pragma unroll
            for (int i = 0; i < kAccumulators; ++i) total[i] += sums[i];
          } else {
            float4* const out = reinterpret_cast<float4*>(g.partial) +
                                (tile.index * g.chunks + block / g.chunk_blocks) * (kAccumulators / 4 * kConsumerThreads) + thread;
#pragma unroll
            for (int i = 0; i < kAccumulators / 4; ++i)
              __stcg(out + i * kConsumerThreads, make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]));
          }
        }
        if (g.splits > 1) {
          __threadfence();
          ptx::named_barrier_sync(kSplitBarrier, kConsumerThreads);
          if (thread == 0) *finished_last = atomicAdd(&g.counters[tile.index], 1u) + 1 == static_cast<unsigned>(g.splits);
          ptx::named_barrier_sync(kSplitBarrier, kConsumerThreads);
          if (!*finished_last) continue;
          __threadfence();
          const float4* const in =
              reinterpret_cast<const float4*>(g.partial) + tile.index * g.chunks * (kAccumulators / 4 * kConsumerThreads) + thread;
          for (int chunk = 0; chunk < g.chunks; ++chunk) {
#pragma unroll
            for (int i = 0; i < kAccumulators / 4; ++i) {
              const float4 sums = __ldcg(in + (chunk * (kAccumulators / 4) + i) * kConsumerThreads);
              total[4 * i] += sums.x, total[4 * i + 1] += sums.y, total[4 * i + 2] += sums.z, total[4 * i + 3] += sums.w;
            }
          }
        }
      }
      wgmma_detail::store_tile<Out, kConfig.scaled, kTileN>(total, g, tile.row + consumer * 64 + warp * 16, tile.column, tile.batch,
                                                            lane, staging + (consumer * 4 + warp) * Boxes::kStagingBytes);
    }
    if (lane == 0) ptx::tma_store_wait_read<0>();  // shared memory must outlive the stores' reads
  }
#endif
}

}  // namespace xgemm::matmul
