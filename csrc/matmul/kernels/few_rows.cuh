// Few rows times a half-precision B that TMA cannot load (odd strides, any base), which is read once, as it lies (sm_90a).
//
//   Work      A CTA has up to 128 rows by 32 columns of C at a time, or its part of K in a cluster (Splits: wgmma_gemm.cuh).
//   Roles     Warps 0 to 3 multiply (mma.sync m16n8k16). Five warps bring B by cp.async: the aligned 16-byte blocks in which
//             its lines lie, each once and unshifted, many slots ahead. One more warp brings A by TMA: K-major, a copy of the
//             few rows where it must be.
//   Shift     An element is read from shared memory by itself, wherever its line begins: two of them make a register of B's
//             fragment. A line's skew is the same for every eighth line, so a lane has one or two of them.
//   Operands  B contiguous along k or along n. Nothing outside it is read but the rest of the aligned block that it begins in.
//   Order     is that of kernels/wgmma_gemm.cuh (mma.sync rounds as wgmma does), and the epilogue its store_rows: a row's bits
//             are equal, whichever of the two is taken.
//   Launch    The loaders of B start while the kernel that copies A still runs: whatever came before that one has ended.
//
// Floor: B's bytes; along n, lines of 80 bytes come at 2.8 TB/s. Measured: 1.4 to 1.9 times that (docs/log/matmul.md).
#pragma once
#include "device/bytes16.cuh"
#include "device/ptx/cp_async.cuh"
#include "device/ptx/mma.cuh"
#include "matmul/kernels/wgmma_gemm.cuh"

namespace xgemm::matmul {

struct FewRowsArguments {
  WgmmaArguments g;  ///< map of a, problem, columns, tiles, slot_bytes (A's), split_blocks and cluster; nothing else
  const std::uint16_t *b, *b_end;
  std::int64_t b_stride;  ///< of lines: columns where B is contiguous along k, else rows
  bool after_copy;        ///< the kernel before this one copies A: B need not wait for it
};

template <bool kAlongK, int kRows16>
struct FewRowsShape {
  static constexpr bool kKMajor = kAlongK;
  static constexpr int kRows = 16 * kRows16, kColumns = 32, kSlotK = kRows16 <= 2 ? 128 : 64;
  static constexpr int kLines = kAlongK ? kColumns : kSlotK;  // of B in a slot
  static constexpr int kLineBlocks = (kAlongK ? kSlotK : kColumns) / 8 + 1, kPitch = 16 * kLineBlocks;
  static constexpr int kBytesA = kRows * 128, kSlotBytes = (kSlotK / 64 * kBytesA + kLines * kPitch + 1023) / 1024 * 1024;
  static constexpr int kStages = 150 * 1024 / kSlotBytes;  // the kernel that copies A fits beside it
  static constexpr int kLoaders = 160, kThreads = 128 + kLoaders + 32;
  static constexpr int kWarpsM = kRows16 >= 4 ? 2 : 1, kM = kRows16 / kWarpsM, kN = kWarpsM;  // a warp's tiles of 16 x 8
  static constexpr int kSumPitch = kColumns + 8, kSumBytes = kRows * kSumPitch * 4;
  static constexpr int kSharedBytes = kStages * kSlotBytes + kSumBytes + 2 * kStages * 8 + 1024;
  static_assert(kMaxCluster * kSumBytes <= kStages * kSlotBytes + kSumBytes);  // staging follows
};

template <class Element, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) few_rows(const __grid_constant__ FewRowsArguments f) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr bool kAlongK = Shape::kKMajor;
  constexpr int kStages = Shape::kStages, kSlotBytes = Shape::kSlotBytes, kSlotK = Shape::kSlotK, kPitch = Shape::kPitch,
                kColumns = Shape::kColumns, kPlaceB = kSlotK / 64 * Shape::kBytesA;
  const WgmmaArguments& g = f.g;
  const Problem& p = g.problem;

  extern __shared__ unsigned char shared_memory[];
  unsigned char* const slots =
      shared_memory + ((1024 - (ptx::shared_address(shared_memory) & 1023)) & 1023);  // the swizzle is a pattern of 1024 bytes
  unsigned char* const staging = slots + kStages * kSlotBytes;
  ptx::Barrier* const full = reinterpret_cast<ptx::Barrier*>(staging + Shape::kSumBytes);
  ptx::Barrier* const empty = full + kStages;

  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      ptx::barrier_init(&full[s], Shape::kLoaders + 1);
      ptx::barrier_init(&empty[s], 4);
    }
    ptx::fence_barrier_init();
    ptx::prefetch_tensor_map(&g.a);
  }
  __syncthreads();
  if (g.cluster > 1) ptx::cluster_sync();

  const int n = static_cast<int>(p.n), m = static_cast<int>(p.m);
  const int step = static_cast<int>(gridDim.x) / g.cluster, first = static_cast<int>(blockIdx.x) / g.cluster;
  const int rank = static_cast<int>(blockIdx.x) - first * g.cluster;
  // Of k, this CTA does [k_begin, k_end): all of it, or its part of a cluster's.
  const int k_begin = rank * g.split_blocks * kWgmmaTileK,
            k_end = g.cluster > 1 ? min(static_cast<int>(p.k), k_begin + g.split_blocks * kWgmmaTileK) : static_cast<int>(p.k);
  const auto line_of = [&](int column, int batch, int line) {  // of B: its first element that a tile wants
    const std::uint16_t* const b = f.b + batch_offset(p, p.b, batch);
    return kAlongK ? b + (column + line) * f.b_stride + k_begin : b + (k_begin + line) * f.b_stride + column;
  };
  ptx::Ring<kStages> ring;

  if (warp == 9) {
    ptx::grid_wait();
    ptx::grid_release();
    if (ptx::elect_one()) {
      for (int index = first; index < g.tiles; index += step) {
        const int batch = index / g.columns * g.batch_step_a;
        for (int k = k_begin; k < k_end; k += kSlotK, ring.advance()) {
          ptx::barrier_wait(&empty[ring.slot], ring.parity ^ 1);
          ptx::barrier_arrive_expect(&full[ring.slot], static_cast<unsigned>(g.slot_bytes));
#pragma unroll
          for (int i = 0; i < kSlotK / 64; ++i)
            ptx::tma_load(slots + ring.slot * kSlotBytes + i * Shape::kBytesA, &g.a, &full[ring.slot], k + 64 * i, 0, batch);
        }
      }
    }
  } else if (warp >= 4) {
    constexpr int kBlocks = Shape::kLines * Shape::kLineBlocks, kMine = (kBlocks + Shape::kLoaders - 1) / Shape::kLoaders;
    const int thread = static_cast<int>(threadIdx.x) - 128;
    const std::int64_t advance = kAlongK ? 2 * kSlotK : 2 * kSlotK * f.b_stride;  // a multiple of 16, as is every eighth line
    const char* const end = reinterpret_cast<const char*>(f.b_end);
    if (!f.after_copy) ptx::grid_wait();
    for (int index = first; index < g.tiles; index += step) {
      const int batch = index / g.columns, column = (index - batch * g.columns) * kColumns;
      const char* from[kMine];
      int line[kMine], reach[kMine];  // of a block: from its line's first byte
#pragma unroll
      for (int j = 0; j < kMine; ++j) {
        const int block = thread + j * Shape::kLoaders;
        line[j] = block / Shape::kLineBlocks;
        const std::uint16_t* const begin = line_of(column, batch, line[j]);
        reach[j] = block % Shape::kLineBlocks * 16 - static_cast<int>(misalignment(begin));
        from[j] = reinterpret_cast<const char*>(begin) + reach[j];
        if (block >= kBlocks) line[j] = 1 << 30;
      }
      for (int k = k_begin; k < k_end; k += kSlotK, ring.advance()) {
        const int lines = kAlongK ? n - column : k_end - k,
                  bytes = 2 * (kAlongK ? min(kSlotK, k_end - k) : min(kColumns, n - column));
        unsigned char* const slot = slots + ring.slot * kSlotBytes + kPlaceB + thread * 16;
        bool plain = true;
        ptx::barrier_wait(&empty[ring.slot], ring.parity ^ 1);
#pragma unroll
        for (int j = 0; j < kMine; ++j, from[j - 1] += advance) {
          if (line[j] >= lines || reach[j] >= bytes) continue;  // what is not brought is no element of C's sums
          if (end - from[j] >= 16) {
            cp_async<16>(slot + j * (16 * Shape::kLoaders), from[j], 16);
          } else {
            *reinterpret_cast<uint4*>(slot + j * (16 * Shape::kLoaders)) =
                load_front<std::uint16_t>(from[j], static_cast<unsigned>(end - from[j]));
            plain = false;
          }
        }
        if (plain) {
          ptx::barrier_arrive_copies(&full[ring.slot]);
        } else {  // an ordinary store, which an ordinary arrival makes visible
          cp_async_commit();
          cp_async_wait<0>();
          ptx::barrier_arrive(&full[ring.slot]);
        }
      }
    }
  } else {
    constexpr int kM = Shape::kM, kN = Shape::kN;
    const int quad = lane % 4, row = lane / 4, first_row = warp % Shape::kWarpsM * 16 * kM,
              first_column = warp / Shape::kWarpsM * 8 * kN;
    // Two elements of the lane's, k = 2 quad and the next, column `row`; from them on, others' places.
    constexpr int kEight = kAlongK ? 16 : 8 * kPitch, kStep = 2 * kEight, kNext = kAlongK ? 8 * kPitch : 16;
    const int a_row = first_row + lane % 16, a_piece = lane / 16;
    const unsigned char* const a_place = slots + a_row * 128;
    for (int index = first; index < g.tiles; index += step) {
      const int batch = index / g.columns, column = (index - batch * g.columns) * kColumns;
      int place[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int line = kAlongK ? first_column + row : 2 * quad + e, along = kAlongK ? 2 * quad + e : first_column + row;
        place[e] = kPlaceB + line * kPitch + static_cast<int>(misalignment(line_of(column, batch, line))) + 2 * along;
      }
      float sums[kM][kN][4] = {};
      const auto multiply = [&](int left, auto is_last) {  // a slot
        constexpr bool kLast = decltype(is_last)::value;
        const int slot = ring.slot * kSlotBytes;
#pragma unroll
        for (int s = 0; s < kSlotK / 16; ++s) {
          if (kLast && 16 * s >= left) break;
          std::uint32_t b[kN][2];
#pragma unroll
          for (int j = 0; j < kN; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              unsigned element[2];
#pragma unroll
              for (int e = 0; e < 2; ++e) {
                element[e] =
                    *reinterpret_cast<const std::uint16_t*>(slots + slot + place[e] + s * kStep + h * kEight + j * kNext);
                if (kLast && 16 * s + 8 * h + 2 * quad + e >= left) element[e] = 0;  // what lies behind is any number
              }
              b[j][h] = __byte_perm(element[0], element[1], 0x5410);
            }
#pragma unroll
          for (int i = 0; i < kM; ++i) {
            std::uint32_t a[4];
            ptx::ldmatrix(a, a_place + slot + s / 4 * Shape::kBytesA + i * 2048 + ((2 * (s % 4) + a_piece) ^ (a_row & 7)) * 16);
#pragma unroll
            for (int j = 0; j < kN; ++j) ptx::mma<Element>(sums[i][j], a, b[j][0], b[j][1]);
          }
        }
      };
      for (int k = k_begin; k < k_end; k += kSlotK, ring.advance()) {
        ptx::barrier_wait(&full[ring.slot], ring.parity);
        if (k_end - k >= kSlotK)
          multiply(kSlotK, std::false_type{});
        else
          multiply(k_end - k, std::true_type{});
        __syncwarp();
        if (lane == 0) ptx::barrier_arrive(&empty[ring.slot]);
      }

      // Sums [part][row][column] meet in shared memory: a cluster's in the slots of its first CTA, which are free by then.
      float* const parts = reinterpret_cast<float*>(g.cluster > 1 ? slots : staging);
      if (g.cluster > 1)
        ptx::cluster_sync_warps();
      else
        ptx::named_barrier_sync(1, 128);  // the tile before has been read
#pragma unroll
      for (int i = 0; i < kM; ++i)
#pragma unroll
        for (int j = 0; j < kN; ++j)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float* const to = parts + (rank * Shape::kRows + first_row + 16 * i + row + 8 * h) * Shape::kSumPitch + first_column +
                              8 * j + 2 * quad;
            if (g.cluster > 1)
              ptx::store_remote(ptx::remote_address(to, 0), sums[i][j][2 * h], sums[i][j][2 * h + 1]);
            else
              store_vector(to, Vector<float, 2>{{sums[i][j][2 * h], sums[i][j][2 * h + 1]}});
          }
      if (g.cluster > 1)
        ptx::cluster_sync_warps();
      else
        ptx::named_barrier_sync(1, 128);
      if (rank > 0) continue;
      const wgmma_detail::LaneColumns columns(p, lane);
      const auto epilogue = wgmma_detail::tile_epilogue<Element>(p, batch);
      for (int r0 = 4 * warp; r0 < m; r0 += 16)
        wgmma_detail::store_rows<Element, false, 4>(
            g, epilogue, r0, min(4, m - r0), column, columns, column + kColumns, batch, [&](int r) {
              const float* part = parts + (r0 + r) * Shape::kSumPitch;
              Vector<float, 2> sum{{part[columns.first], columns.paired ? part[columns.second] : 0.f}};
              for (int s = 1; s < g.cluster; ++s) {
                part += Shape::kRows * Shape::kSumPitch;
                sum[0] += part[columns.first];
                if (columns.paired) sum[1] += part[columns.second];
              }
              return sum;
            });
    }
  }
  if (warp >= 4 && g.cluster > 1) {  // the sums' two
    ptx::cluster_sync_warps();
    ptx::cluster_sync_warps();
  }
#endif
}

}  // namespace xgemm::matmul
