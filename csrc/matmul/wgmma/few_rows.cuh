// Few rows (up to 128) times a half-precision B that is unaligned, read once and in place (sm_90a). TMA cannot load such a B as
// one matrix, and packing it takes longer than the product: H200, bf16, 16x4095x4097 13.1 us (packed 31, torch 36),
// 128x4097x4097 18.9 us (34, 41). Details: docs/matmul.md, docs/log/matmul.md.
//
//   Operands  B contiguous along k or n, lines at least as far apart as they are long. Out of bounds, only the rest of the
//             aligned block in which B begins is read. A K-major for TMA (packed if it must be).
//   Lines     of B eight apart are equally aligned. Eight tensor maps, for lines c, c + 8, ..., begin at the aligned block in
//             which line c begins. An element in shared memory is its line's skew further.
//   Work      A cluster of two CTAs computes 64 columns of C, each CTA half of the rows (up to 64), and multicasts B. If K is
//             split, each CTA of a cluster computes a split. Warps 0 to 3 multiply C^T = B^T A^T with B^T in registers; warp 4
//             loads B, warp 5 A.
//   Order     of additions and epilogue (store_rows) are those of wgmma/kernel.cuh: a row has the same bits.
//
// Floor: B's bytes. Limited by shared memory: per 128 of k, 200 cycles to write, 192 or 256 to read B by elements, 64 and more
// to read A; wgmma waits for its reads and takes 650 to 830 in all.
#pragma once
#include "device/ptx/mma.cuh"
#include "device/ptx/stmatrix.cuh"
#include "matmul/wgmma/kernel.cuh"

namespace xgemm::matmul {

inline constexpr int kLineClasses = 8;  // lines of B this far apart are equally aligned

struct FewRowsArguments {
  WgmmaArguments g;             ///< only a, problem, batch_step_a, tiles.columns, tiles.count, k.split_blocks, k.cluster_splits
  CUtensorMap b[kLineClasses];  ///< dims (along a line, lines of the class, batches)
  int batch_step_b;             ///< 0: all batches share one B
  int skew[kLineClasses];       ///< elements from the start of map c's lines to the first element of line c
  int halves;                   ///< halves of the rows, if they are separate tiles; 1 with multicast (a CTA's half is its rank)
  bool multicast;               ///< each CTA of a cluster loads half of B for both
  bool after_copy;              ///< the previous kernel packs A: B is loaded while it runs, as all kernels before it have ended
};

/// `kEvenLines`: at most 32 rows, and one of any two neighbouring lines begins an even number of elements after a multiple of 16
/// bytes.
template <bool kAlongK, bool kEvenLines>
struct FewRowsShape {
  static constexpr bool kKMajor = kAlongK, kWords = kEvenLines;
  static constexpr int kRows = kWords ? 16 : 64, kColumns = 64, kSlotK = 128;  // kRows: of a CTA, half of all
  static constexpr int kBox[2] = {(kAlongK ? kSlotK : kColumns) + 8, (kAlongK ? kColumns : kSlotK) / kLineClasses};
  static constexpr int kPitch = 2 * kBox[0], kBoxBytes = kPitch * kBox[1];
  static constexpr int kBytesA = kRows * 128, kPlaceB = kSlotK / 64 * kBytesA, kBytesB = kLineClasses * kBoxBytes;
  static constexpr int kSlotBytes = kPlaceB + kBytesB;
  static constexpr int kStages = 150 * 1024 / kSlotBytes;  // leaves room on the SM for the kernel that packs A
  static constexpr int kThreads = 192;
  static constexpr int kSumPitch = kColumns + 2, kSumBytes = kRows * kSumPitch * 4;
  static constexpr int kSharedBytes = kStages * kSlotBytes + kSumBytes + Pipeline<kStages>::kBytes + kSwizzlePattern;
  static_assert(kMaxCluster * kSumBytes <= kStages * kSlotBytes + kSumBytes);  // staging follows
  static_assert(kSlotBytes % 1024 == 0 && kBoxBytes % 128 == 0);
};

/// Where a CTA begins in shared memory.
template <class Shape>
struct FewRowsShared {
  unsigned char* memory;
  unsigned char *slots = memory + swizzle_padding(memory), *staging = slots + Shape::kStages * Shape::kSlotBytes;
  Pipeline<Shape::kStages> pipeline{reinterpret_cast<ptx::Barrier*>(staging + Shape::kSumBytes)};
};

/// A CTA's tiles: first, first + step, ...; and its range of k: all, or its split.
template <class Shape>
struct FewRowsWork {
  const FewRowsArguments& f;
  const int size = f.multicast ? 2 : f.g.k.cluster_splits, depth = static_cast<int>(f.g.problem.k);  ///< size: of a cluster
  const int step = static_cast<int>(gridDim.x) / size, first = static_cast<int>(blockIdx.x) / size;
  const int rank = static_cast<int>(blockIdx.x) - first * size, split = f.multicast ? 0 : rank;
  const int begin = split * f.g.k.split_blocks * kWgmmaTileK,
            end = f.g.k.cluster_splits > 1 ? min(depth, begin + f.g.k.split_blocks * kWgmmaTileK) : depth;
  __device__ __forceinline__ wgmma_detail::Tile locate(int index) const {
    const int tile = index / f.halves, half = f.multicast ? rank : index - tile * f.halves, batch = tile / f.g.tiles.columns;
    return {half * Shape::kRows, (tile - batch * f.g.tiles.columns) * Shape::kColumns, batch};
  }
  /// Warps 4 and 5: calls load(place of the tile, k, slot, landed) in one lane for each slot.
  template <class Load>
  __device__ __forceinline__ void fill_slots(const FewRowsShared<Shape>& shared, const Load& load) const {
    const bool leads = ptx::elect_one();
    PipelineState<Shape::kStages> state;
    for (int index = first; index < f.g.tiles.count; index += step) {
      const wgmma_detail::Tile at = locate(index), uniform{warp_uniform(at.row), warp_uniform(at.column), warp_uniform(at.batch)};
      for (int k = begin; k < end; k += Shape::kSlotK, state.advance()) {
        ptx::Barrier* const landed = shared.pipeline.acquire(state);
        if (leads) load(uniform, k, shared.slots + state.slot * Shape::kSlotBytes, landed);
        __syncwarp();
      }
    }
  }
};

template <class Shape>
__device__ __forceinline__ void load_b(const FewRowsWork<Shape>& work, const FewRowsShared<Shape>& shared) {
  const FewRowsArguments& f = work.f;
  constexpr int kBox = Shape::kBoxBytes;
  if (!f.after_copy) ptx::grid_wait();
  const int classes_begin = f.multicast ? warp_uniform(work.rank) * 4 : 0;
  work.fill_slots(shared, [&](const auto& at, int k, unsigned char* slot, ptx::Barrier* landed) {
    ptx::barrier_arrive_expect(landed, Shape::kBytesB);
    unsigned char* const to = slot + Shape::kPlaceB;
    const int c0 = Shape::kKMajor ? k : at.column, c1 = (Shape::kKMajor ? at.column : k) / kLineClasses,
              batch = at.batch * f.batch_step_b;
    if (f.multicast) {
#pragma unroll
      for (int c = 0; c < 4; ++c)
        ptx::tma_load_multicast(to + (classes_begin + c) * kBox, &f.b[classes_begin + c], landed, c0, c1, batch, 3);
    } else {
#pragma unroll
      for (int c = 0; c < kLineClasses; ++c) ptx::tma_load(to + c * kBox, &f.b[c], landed, c0, c1, batch);
    }
  });
}

template <class Shape>
__device__ __forceinline__ void load_a(const FewRowsWork<Shape>& work, const FewRowsShared<Shape>& shared) {
  const WgmmaArguments& g = work.f.g;
  ptx::grid_wait();
  ptx::grid_release();
  work.fill_slots(shared, [&](const auto& at, int k, unsigned char* slot, ptx::Barrier* landed) {
    ptx::barrier_arrive_expect(landed, Shape::kPlaceB);
#pragma unroll
    for (int i = 0; i < Shape::kSlotK / 64; ++i)
      ptx::tma_load(slot + i * Shape::kBytesA, &g.a, landed, k + 64 * i, at.row, at.batch * g.batch_step_a);
  });
}

/// Warps 0 to 3.
template <class Element, class Shape>
struct FewRowsConsumer {
  using LayoutA = ptx::OperandLayout<true, 128, 1024>;
  static constexpr bool kAlongK = Shape::kKMajor;
  static constexpr int kSlotBytes = Shape::kSlotBytes, kSlotK = Shape::kSlotK, kPitch = Shape::kPitch, kRows = Shape::kRows,
                       kSteps = kSlotK / 16;
  using Sums = float[kRows / 2];

  const FewRowsArguments& f;
  const FewRowsShared<Shape>& shared;
  const int warp, lane;
  const bool swapped = Shape::kWords && f.skew[0] % 2 != 0;
  const std::uint32_t base = static_cast<std::uint32_t>(warp_uniform(static_cast<int>(ptx::shared_address(shared.slots)))),
                      base_a = LayoutA::descriptor_low(base);
  // The barrier at which this lane releases a slot: its own CTA's, one of the pair's, or none.
  const std::uint32_t empty_at = f.multicast
                                     ? lane < 2 ? ptx::remote_address(shared.pipeline.empty, static_cast<unsigned>(lane)) : 0
                                 : lane == 0 ? ptx::shared_address(shared.pipeline.empty)
                                             : 0;
  PipelineState<Shape::kStages> state{};
  // The lane's elements: columns 8 row + 2 warp + h, k = 2 quad + e, and both 8 further. With odd strides, reads have no bank
  // conflicts. kWords: place[0] is the even line's. If that is the second line, the fragment's two columns (B along k) or the
  // halves of its registers (B along n) are exchanged.
  const std::uint32_t place[2] = {first_of(swapped), first_of(!swapped)};  // indexed by h if lines are columns, else by e

  __device__ __forceinline__ std::uint32_t first_of(int second) const {
    const int quad = lane % 4, row = lane / 4, line = 2 * (kAlongK ? warp : quad) + second;
    return base + static_cast<unsigned>(Shape::kPlaceB + line * Shape::kBoxBytes + 2 * f.skew[line] +
                                        (kAlongK ? row * kPitch + 4 * quad : 2 * (8 * row + 2 * warp)));
  }
  __device__ __forceinline__ void release(int slot, bool really) const {
    __syncwarp();  // all lanes have read
    ptx::barrier_arrive_remote_if(empty_at + 8 * static_cast<unsigned>(slot), really && empty_at != 0);
  }

  /// kWords: by mma.sync. Elements of half a slot, and fragments of A's rows.
  struct Half {
    static constexpr int kSteps = kSlotK / 32;
    unsigned elements[kSteps][2][3];  // [step][k + 8]: a pair of the even line, and two elements of the other
    std::uint32_t rows[kSteps][kRows / 8][2];
  };
  __device__ __forceinline__ void fetch(Half& to, unsigned offset, int half, int s) const {
#pragma unroll
    for (int up = 0; up < 2; ++up) {
      const int step = half * Half::kSteps + s, at = kAlongK ? 32 * step + 16 * up : (2 * step + up) * kPitch;
      to.elements[s][up][0] = ptx::load_shared4(place[0] + offset + static_cast<unsigned>(at));
#pragma unroll
      for (int i = 0; i < 2; ++i)
        to.elements[s][up][1 + i] = ptx::load_shared2(place[1] + offset + static_cast<unsigned>(at + 2 * i));
    }
    // Each ldmatrix loads four 8 x 8 matrices: of two steps (kRows = 8), or of 16 rows of one step.
    const std::uint32_t from = base + offset + static_cast<unsigned>(half * Shape::kBytesA + lane % 8 * 128);
    std::uint32_t r[4];
    if constexpr (kRows == 8) {
      if (s % 2) return;
      ptx::ldmatrix(r, from + static_cast<unsigned>(((2 * s + lane / 8) ^ lane) % 8 * 16));
      to.rows[s][0][0] = r[0], to.rows[s][0][1] = r[1], to.rows[s + 1][0][0] = r[2], to.rows[s + 1][0][1] = r[3];
    } else {
#pragma unroll
      for (int j = 0; j < kRows / 8; j += 2) {
        ptx::ldmatrix(r, from + static_cast<unsigned>((j + lane / 16) * 1024 + ((2 * s + lane / 8 % 2) ^ lane) % 8 * 16));
        to.rows[s][j][0] = r[0], to.rows[s][j][1] = r[1], to.rows[s][j + 1][0] = r[2], to.rows[s][j + 1][1] = r[3];
      }
    }
  }

  /// Loads half a slot's elements while the previous half is multiplied, step by step: each product waits for the one before it,
  /// and the loads fill the gaps.
  __device__ __forceinline__ void sum_by_mma(Sums& sums, int begin, int end) {
    Half half_slot;
    const unsigned select[2] = {swapped ? 0x1054u : 0x5410u, swapped ? 0x3254u : 0x5432u};
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) sums[i] = 0;
    shared.pipeline.wait(state);
#pragma unroll
    for (int s = 0; s < Half::kSteps; ++s) fetch(half_slot, static_cast<unsigned>(state.slot * kSlotBytes), 0, s);
    for (int k = begin; k < end; k += kSlotK) {
      const int slot = state.slot;
      const bool last = k + kSlotK >= end;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (half == 1) {
          state.advance();
          if (!last) shared.pipeline.wait(state);
        }
        const auto next = static_cast<unsigned>((half == 0 || last ? slot : state.slot) * kSlotBytes);  // last: unused
        std::uint32_t others[Half::kSteps][kRows / 8][2];
#pragma unroll
        for (int s = 0; s < Half::kSteps; ++s)
#pragma unroll
          for (int j = 0; j < kRows / 8; ++j)
            others[s][j][0] = half_slot.rows[s][j][0], others[s][j][1] = half_slot.rows[s][j][1];
#pragma unroll
        for (int s = 0; s < Half::kSteps; ++s) {
          std::uint32_t fragment[4];
#pragma unroll
          for (int up = 0; up < 2; ++up) {
            const auto& x = half_slot.elements[s][up];
            fragment[2 * up] = kAlongK ? x[0] : __byte_perm(x[0], x[1], select[0]);
            fragment[2 * up + 1] = kAlongK ? __byte_perm(x[1], x[2], 0x5410) : __byte_perm(x[0], x[2], select[1]);
          }
          fetch(half_slot, next, 1 - half, s);
#pragma unroll
          for (int j = 0; j < kRows / 8; ++j)
            ptx::mma<Element>(*reinterpret_cast<float(*)[4]>(sums + 4 * j), fragment, others[s][j][0], others[s][j][1]);
        }
      }
      release(slot, true);  // no proxy fence: the products have used all that was loaded from the slot
    }
  }
  /// By wgmma.
  __device__ __forceinline__ void sum_by_wgmma(Sums& sums, int begin, int end) {
    int previous = 0;
    for (int k = begin; k < end; k += kSlotK) {
      shared.pipeline.wait(state);
      const auto offset = static_cast<unsigned>(state.slot * kSlotBytes);
      unsigned elements[kSteps][2][2][2];  // [step][k + 8][h][e]
#pragma unroll
      for (int s = 0; s < kSteps; ++s)
#pragma unroll
        for (int up = 0; up < 2; ++up)
#pragma unroll
          for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int e = 0; e < 2; ++e)
              elements[s][up][h][e] =
                  ptx::load_shared2(place[kAlongK ? h : e] + offset +
                                    static_cast<unsigned>(kAlongK ? 32 * s + 16 * up + 2 * e : (2 * s + up) * kPitch + 2 * h));
      ptx::wgmma_wait<0>();  // the previous slot's products: frees its fragment registers and the slot
      release(previous, k > begin);
      std::uint32_t fragments[kSteps][4];
#pragma unroll
      for (int s = 0; s < kSteps; ++s)
#pragma unroll
        for (int up = 0; up < 2; ++up)
#pragma unroll
          for (int h = 0; h < 2; ++h)
            fragments[s][2 * up + h] = __byte_perm(elements[s][up][h][0], elements[s][up][h][1], 0x5410);
#pragma unroll
      for (int s = 0; s < kSteps; ++s) ptx::wgmma_pin(fragments[s]);
      ptx::wgmma_fence();
#pragma unroll
      for (int s = 0; s < kSteps; ++s)
        ptx::WgmmaRegisters<Element>::mma(
            sums, fragments[s], LayoutA::descriptor(base_a + offset / 16, s / 4 * Shape::kBytesA + s % 4 * LayoutA::kStepBytes),
            k > begin || s > 0);
      ptx::wgmma_commit();
      previous = state.slot;
      state.advance();
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(sums);
    release(previous, true);
  }

  /// Adds the sums [split][row][column] in shared memory (a cluster's in the slots of its first CTA, which are free by then), and
  /// stores them.
  __device__ __forceinline__ void add_and_store(const Sums& sums, const FewRowsWork<Shape>& work, int index) const {
    const WgmmaArguments& g = f.g;
    const Problem& p = g.problem;
    const bool clustered = g.k.cluster_splits > 1;
    const auto at = work.locate(index);
    float* const partials = reinterpret_cast<float*>(clustered ? shared.slots : shared.staging);
    if (clustered)
      ptx::cluster_sync_warps();
    else
      ptx::named_barrier_sync(1, 128);  // the tile before has been read
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float* const to =
            partials + (work.split * kRows + 8 * j + 2 * (lane % 4) + c) * Shape::kSumPitch + 8 * (lane / 4) + 2 * warp;
        const bool exchange = kAlongK && swapped;
        const float upper = sums[4 * j + c], lower = sums[4 * j + 2 + c];
        const Vector<float, 2> sum{{exchange ? lower : upper, exchange ? upper : lower}};
        if (clustered)
          ptx::store_remote(ptx::remote_address(to, 0), sum[0], sum[1]);
        else
          store_vector(to, sum);
      }
    if (clustered)
      ptx::cluster_sync_warps();
    else
      ptx::named_barrier_sync(1, 128);
    if (work.split > 0) return;
    const wgmma_detail::LaneColumns columns(p, lane);
    const auto epilogue = make_epilogue<Element, float>(p, at.batch);
    const int rows = min(kRows, static_cast<int>(p.m) - at.row);
    for (int r0 = 4 * warp; r0 < rows; r0 += 16) {
      const auto total = [&](int r) {
        const float* from = partials + (r0 + r) * Shape::kSumPitch;
        Vector<float, 2> sum{{from[columns.first], from[columns.second]}};
        for (int s = 1; s < g.k.cluster_splits; ++s) {
          from += kRows * Shape::kSumPitch;
          sum[0] += from[columns.first], sum[1] += from[columns.second];
        }
        return sum;
      };
      wgmma_detail::store_rows<Element, false, 4>(g, epilogue, at.row + r0, min(4, rows - r0), at.column, columns,
                                                  at.column + Shape::kColumns, at.batch, total);
    }
  }
};

template <class Element, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) few_rows(const __grid_constant__ FewRowsArguments f) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const WgmmaArguments& g = f.g;
  extern __shared__ unsigned char shared_memory[];
  const FewRowsShared<Shape> shared{shared_memory};
  const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32), lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    shared.pipeline.init(2, f.multicast ? 8 : 4);
    ptx::fence_barrier_init();
  }
  if (warp == 4 && lane < kLineClasses) ptx::prefetch_tensor_map(&f.b[lane]);
  if (warp == 5 && lane == 0) ptx::prefetch_tensor_map(&g.a);
  __syncthreads();
  if (f.multicast || g.k.cluster_splits > 1) ptx::cluster_sync();
  const FewRowsWork<Shape> work{f};
  if (warp == 4) {
    load_b(work, shared);
  } else if (warp == 5) {
    load_a(work, shared);
  } else {
    FewRowsConsumer<Element, Shape> consumer{f, shared, warp, lane};
    for (int index = work.first; index < g.tiles.count; index += work.step) {
      float sums[Shape::kRows / 2];
      if constexpr (Shape::kWords)
        consumer.sum_by_mma(sums, work.begin, work.end);
      else
        consumer.sum_by_wgmma(sums, work.begin, work.end);
      consumer.add_and_store(sums, work, index);
    }
  }
  if (warp >= 4 && g.k.cluster_splits > 1) {  // match the two cluster barriers around the sums
    ptx::cluster_sync_warps();
    ptx::cluster_sync_warps();
  }
  if (f.multicast) ptx::cluster_sync_warps();  // shared memory must outlive the other CTA's arrivals
#endif
}

}  // namespace xgemm::matmul
