// Matrix product on Hopper's tensor cores (sm_90a): C = A B for half-precision and tf32 operands, and for fp32 operands that
// kernels/split_fp16.cuh has split in two fp16 parts. One persistent, warp-specialised kernel.
//
//   Work      A CTA owns 128 x tile_n of C at a time and walks its share of the tiles in an order that keeps the operands of the
//             tiles in flight in L2. Warpgroup 0 only loads (TMA), warpgroups 1 and 2 multiply 64 rows each (wgmma m64 x tile_n).
//   Pipeline  `stages` slots of shared memory. full[s] completes when a slot's bytes have landed, empty[s] when every consumer warp
//             that reads it is done. The pipeline runs across tiles: the next tile's loads start during the epilogue.
//   Clusters  With cluster = 2, two CTAs one above the other share B: each loads half of it for both (multicast).
//   Operands  Row- or column-major each; tf32 K-major only. Base and strides multiples of 16 bytes (TMA). Edges of any size: TMA
//             reads zeros outside, stores are guarded. Batches are the tensor maps' third dim (broadcast: step 0).
//   Split     parts = 2: A = (hi, lo), B = (hi, lo); lo*hi, hi*lo, then hi*hi go into one accumulator, small terms first, because the
//             tensor core rounds toward zero at each step. lo*lo is dropped.
//   Promotion The sum of `promote` k-blocks is moved to fp32 registers and added there, rounded to nearest.
//   Order     An element's products are added in an order that depends on K and the config's tile_k and promote alone.
//
// Floors: 2 M N K parts' products (1 or 3) over 4096 flop a cycle and SM; per k-block and CTA, shared memory takes the slot's bytes
// from TMA and gives 64 tile_k (A) + tile_n tile_k (B) elements to each consumer's product, at 128 bytes a cycle.
#pragma once
#include <algorithm>

#include "device/numeric.cuh"
#include "device/ptx/tma.cuh"
#include "device/ptx/warpgroup.cuh"
#include "device/ptx/wgmma.cuh"

namespace xgemm {

/// Compile-time choices of one instantiation: the kernel's parameter is a type with this as its member kValue.
struct WgmmaConfig {
  int tile_n;           ///< columns of C a CTA: 64, 128, 192 or 256
  int tile_k;           ///< elements of k in a slot; a row of 128 bytes, or 64 for K-major operands
  int stages;           ///< slots
  bool k_major_a;       ///< A row-major
  bool k_major_b;       ///< B column-major
  int group;            ///< rows of tiles walked together before the next column of tiles
  int cluster = 1;      ///< CTAs along M that share B
  int parts = 1;        ///< 2: operands are hi and lo
  int promote = 0;      ///< k-blocks summed in the tensor core before promotion; 0: all of K
  bool overlap = false; ///< two accumulators: one is promoted while the tensor core fills the other
};

inline constexpr int kWgmmaTileM = 128;
inline constexpr int kWgmmaThreads = 384;

/// Arguments of one launch. `Epilogue` says what becomes of an accumulator (see StoreEpilogue).
template <class Epilogue>
struct WgmmaArguments {
  CUtensorMap a, b;  ///< dims (contiguous, other, batch * parts); boxes as WgmmaBoxes says
  int m, n, k;
  int batch;
  int batch_step_a, batch_step_b;  ///< 0: the operand is one matrix for all batches
  Epilogue epilogue;
};

/// The boxes that the kernel's loads move, which the host writes in the tensor maps.
template <class Element, class Config>
struct WgmmaBoxes {
  static constexpr WgmmaConfig kConfig = Config::kValue;
  static constexpr int kRowBytes = kConfig.tile_k * static_cast<int>(sizeof(Element));
  static constexpr int kSwizzleA = kConfig.k_major_a ? kRowBytes : 128;
  static constexpr int kSwizzleB = kConfig.k_major_b ? kRowBytes : 128;
  static constexpr int kBoxA[2] = {kConfig.k_major_a ? kConfig.tile_k : 64, kConfig.k_major_a ? kWgmmaTileM : kConfig.tile_k};
  static constexpr int kBoxB[2] = {kConfig.k_major_b ? kConfig.tile_k : 64,
                                   (kConfig.k_major_b ? kConfig.tile_n : kConfig.tile_k) / kConfig.cluster};
  static constexpr int kBytesA = kWgmmaTileM * kRowBytes;
  static constexpr int kBytesB = kConfig.tile_n * kRowBytes;
  static constexpr int kStageBytes = kConfig.parts * (kBytesA + kBytesB);
  static constexpr int kSharedBytes = kConfig.stages * kStageBytes + 2 * 8 * kConfig.stages + 1024;  // 1024: alignment of the slots
};

namespace wgmma_detail {

/// Tiles in the order in which they are handed out: column by column inside groups of `kGroup` rows.
template <class Config>
struct Tiles {
  static constexpr WgmmaConfig kConfig = Config::kValue;
  int rows, columns;  ///< rows of clusters, columns of tiles
  long long count;

  __device__ __forceinline__ Tiles(int m, int n, int batch)
      : rows((m + kWgmmaTileM * kConfig.cluster - 1) / (kWgmmaTileM * kConfig.cluster)),
        columns((n + kConfig.tile_n - 1) / kConfig.tile_n),
        count(static_cast<long long>(rows) * columns * batch) {}

  struct Tile {
    int row, column, batch;  ///< first row and column of C of this CTA
  };
  __device__ __forceinline__ Tile locate(long long index, int rank) const {
    constexpr int kRows = kConfig.group / kConfig.cluster;
    const int per_batch = rows * columns;
    const int batch = static_cast<int>(index / per_batch);
    const int within = static_cast<int>(index - static_cast<long long>(batch) * per_batch);
    const int group = within / (kRows * columns), in_group = within - group * kRows * columns;
    const int height = min(rows - group * kRows, kRows);
    const int column = in_group / height, row = group * kRows + (in_group - column * height);
    return {(row * kConfig.cluster + rank) * kWgmmaTileM, column * kConfig.tile_n, batch};
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

template <class Element, class Config, class Epilogue>
__global__ void __launch_bounds__(kWgmmaThreads, 1) wgmma_gemm(const __grid_constant__ WgmmaArguments<Epilogue> arguments) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr WgmmaConfig kConfig = Config::kValue;
  using Boxes = WgmmaBoxes<Element, Config>;
  constexpr int kTileN = kConfig.tile_n, kTileK = kConfig.tile_k, kStages = kConfig.stages, kParts = kConfig.parts;
  constexpr int kCluster = kConfig.cluster, kAccumulators = kTileN / 2, kConsumerWarps = 8;
  constexpr int kRowBytes = Boxes::kRowBytes;
  constexpr int kBlockBytes = kTileK * 128;  // an MN-major block of 64 columns
  constexpr int kStaggerBarrier = 1;
  static_assert(Boxes::kSharedBytes <= 227 * 1024 && Boxes::kStageBytes % 1024 == 0);
  static_assert(kConfig.promote > 0 || (kParts == 1 && !kConfig.overlap));

  extern __shared__ unsigned char shared_memory[];
  unsigned char* const slots =
      shared_memory + ((1024 - (ptx::shared_address(shared_memory) & 1023)) & 1023);  // the swizzle is a pattern of 1024 bytes
  ptx::Barrier* const full = reinterpret_cast<ptx::Barrier*>(slots + kStages * Boxes::kStageBytes);
  ptx::Barrier* const empty = full + kStages;

  const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
  const int rank = kCluster == 1 ? 0 : static_cast<int>(ptx::cluster_rank());
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      ptx::barrier_init(&full[s], 1);
      ptx::barrier_init(&empty[s], kConsumerWarps * kCluster);
    }
    ptx::fence_barrier_init();
    ptx::prefetch_tensor_map(&arguments.a);
    ptx::prefetch_tensor_map(&arguments.b);
  }
  if constexpr (kCluster > 1)
    ptx::cluster_sync();
  else
    __syncthreads();

  const wgmma_detail::Tiles<Config> tiles(arguments.m, arguments.n, arguments.batch);
  const int blocks = (arguments.k + kTileK - 1) / kTileK;
  const int first_tile = static_cast<int>(blockIdx.x) / kCluster, tile_step = static_cast<int>(gridDim.x) / kCluster;
  // Consumer 2 starts each tile one k-block after consumer 1, and so keeps the tensor cores busy while the other promotes and
  // stores. The ring must hold a tile's blocks back from lapping the barrier: consumer 1 is never `stages` blocks ahead.
  const bool stagger = kConfig.promote > 0 && !kConfig.overlap && blocks >= kStages;

  if (warpgroup == 0) {
    ptx::release_registers<40>();
    if (threadIdx.x < 32 && ptx::elect_one()) {
      wgmma_detail::Ring<kStages> ring;
      for (long long index = first_tile; index < tiles.count; index += tile_step) {
        const auto tile = tiles.locate(index, rank);
        const int batch_a = tile.batch * arguments.batch_step_a * kParts, batch_b = tile.batch * arguments.batch_step_b * kParts;
        for (int block = 0; block < blocks; ++block) {
          ptx::Barrier* const landed = &full[ring.slot];
          unsigned char* target = slots + ring.slot * Boxes::kStageBytes;
          const int k = block * kTileK;
          ptx::barrier_wait(&empty[ring.slot], ring.parity ^ 1);
          ptx::barrier_arrive_expect(landed, Boxes::kStageBytes);
#pragma unroll
          for (int part = 0; part < kParts; ++part, target += Boxes::kBytesA) {
            if constexpr (kConfig.k_major_a) {
              ptx::tma_load(target, &arguments.a, landed, k, tile.row, batch_a + part);
            } else {
#pragma unroll
              for (int i = 0; i < kWgmmaTileM / 64; ++i)
                ptx::tma_load(target + i * kBlockBytes, &arguments.a, landed, tile.row + 64 * i, k, batch_a + part);
            }
          }
          // B, or this CTA's share of it: half of the rows of a K-major tile, half of the k of an MN-major one.
          const auto load_b = [&](unsigned char* to, int c0, int c1, int batch) {
            if constexpr (kCluster == 1)
              ptx::tma_load(to, &arguments.b, landed, c0, c1, batch);
            else
              ptx::tma_load_multicast(to, &arguments.b, landed, c0, c1, batch, (1u << kCluster) - 1);
          };
#pragma unroll
          for (int part = 0; part < kParts; ++part, target += Boxes::kBytesB) {
            if constexpr (kConfig.k_major_b) {
              constexpr int kShare = kTileN / kCluster;
              load_b(target + rank * kShare * kRowBytes, k, tile.column + rank * kShare, batch_b + part);
            } else {
              constexpr int kShare = kTileK / kCluster;
#pragma unroll
              for (int i = 0; i < kTileN / 64; ++i)
                load_b(target + i * kBlockBytes + rank * kShare * 128, tile.column + 64 * i, k + rank * kShare, batch_b + part);
            }
          }
          ring.advance();
        }
      }
    }
  } else {
    ptx::acquire_registers<232>();
    using LayoutA = ptx::OperandLayout<kConfig.k_major_a, Boxes::kSwizzleA, kBlockBytes>;
    using LayoutB = ptx::OperandLayout<kConfig.k_major_b, Boxes::kSwizzleB, kBlockBytes>;
    using Instruction = ptx::Wgmma<Element, kConfig.k_major_a, kConfig.k_major_b>;
    const int consumer = warpgroup - 1;
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const std::uint64_t base_a =
        LayoutA::descriptor(ptx::shared_address(slots) + consumer * (kConfig.k_major_a ? 64 * kRowBytes : kBlockBytes));
    const std::uint64_t base_b = LayoutB::descriptor(ptx::shared_address(slots) + kParts * Boxes::kBytesA);

    // All products of one slot, as one committed group. Offsets are in the descriptors' units of 16 bytes.
    const auto multiply = [&](float(&sums)[kAccumulators], int slot, bool accumulate) {
      const std::uint64_t offset = static_cast<unsigned>(slot * (Boxes::kStageBytes / 16));
      ptx::wgmma_fence();
#pragma unroll
      for (int product = kParts == 1 ? 2 : 0; product < 3; ++product) {
        const int part_a = product == 0, part_b = product == 1;  // lo*hi, hi*lo, hi*hi
#pragma unroll
        for (int step = 0; step < kRowBytes / 32; ++step)
          Instruction::mma(sums, base_a + offset + (part_a * Boxes::kBytesA + step * LayoutA::kStepBytes) / 16,
                           base_b + offset + (part_b * Boxes::kBytesB + step * LayoutB::kStepBytes) / 16,
                           accumulate || step > 0 || product != (kParts == 1 ? 2 : 0));
      }
      ptx::wgmma_commit();
    };
    const auto release = [&](int slot) {
      if constexpr (kCluster == 1) {
        if (lane == 0) ptx::barrier_arrive(&empty[slot]);
      } else {
        if (lane < kCluster) ptx::barrier_arrive_remote(&empty[slot], lane);
      }
    };

    wgmma_detail::Ring<kStages> ring;
    for (long long index = first_tile; index < tiles.count; index += tile_step) {
      const auto tile = tiles.locate(index, rank);
      const auto store = [&](float(&result)[kAccumulators]) {
        arguments.epilogue.template store<kTileN>(result, tile.row + consumer * 64 + warp * 16, tile.column, tile.batch, lane,
                                                  arguments.m, arguments.n);
      };
      float sums[kAccumulators];
      if constexpr (kConfig.promote == 0) {
        int previous = 0;
        for (int block = 0; block < blocks; ++block) {
          ptx::barrier_wait(&full[ring.slot], ring.parity);
          multiply(sums, ring.slot, block > 0);
          ptx::wgmma_wait<1>();  // the group before is done, and with it its slot
          if (block > 0) release(previous);
          previous = ring.slot;
          ring.advance();
        }
        ptx::wgmma_wait<0>();
        ptx::wgmma_pin(sums);
        release(previous);
        store(sums);
      } else {
        float total[kAccumulators];
#pragma unroll
        for (int i = 0; i < kAccumulators; ++i) total[i] = 0;
        const auto promote = [&](float(&partial)[kAccumulators]) {
          ptx::wgmma_pin(partial);
#pragma unroll
          for (int i = 0; i < kAccumulators; ++i) total[i] += partial[i];
        };
        if constexpr (kConfig.overlap) {
          static_assert(kConfig.promote == 1);
          float other[kAccumulators];
          int previous = ring.slot;
          const auto start = [&](float(&target)[kAccumulators]) {
            ptx::barrier_wait(&full[ring.slot], ring.parity);
            multiply(target, ring.slot, false);
          };
          const auto next = [&](float(&target)[kAccumulators], float(&finished)[kAccumulators]) {
            start(target);
            ptx::wgmma_wait<1>();
            release(previous);
            previous = ring.slot;
            ring.advance();
            promote(finished);
          };
          start(sums);
          ring.advance();
          int block = 1;
          for (; block + 1 < blocks; block += 2) {
            next(other, sums);
            next(sums, other);
          }
          if (block < blocks) {
            next(other, sums);
            ptx::wgmma_wait<0>();
            promote(other);
          } else {
            ptx::wgmma_wait<0>();
            promote(sums);
          }
          release(previous);
        } else {
          if (stagger && consumer == 1) ptx::named_barrier_sync(kStaggerBarrier, 256);
          for (int block = 0; block < blocks; ++block) {
            ptx::barrier_wait(&full[ring.slot], ring.parity);
            multiply(sums, ring.slot, block % kConfig.promote != 0);
            ptx::wgmma_wait<0>();
            release(ring.slot);
            ring.advance();
            if (stagger && consumer == 0 && block == 0) ptx::named_barrier_arrive(kStaggerBarrier, 256);
            if (kConfig.promote == 1 || block % kConfig.promote == kConfig.promote - 1 || block == blocks - 1) promote(sums);
          }
        }
        store(total);
      }
    }
  }
  if constexpr (kCluster > 1) ptx::cluster_sync();  // a CTA must not end while the other may still arrive on its barriers
#endif
}

}  // namespace xgemm
