// Products by mma.sync, on every GPU from sm_80 on: half precision; fp32 operands that fp16_split/split.cuh has turned into one
// or two scaled fp16 parts; fp32 in TF32 (sm_90: on others mma.sync need not round as wgmma does). out = epilogue(A B) as
// epilogue/apply.cuh says. One CTA a tile, or a split of its K. Hopper has wgmma/kernel.cuh for large products.
//
//   Operands  contiguous along k or along their lines each, any batch. Small tiles and TF32: at any address; large tiles and two
//             parts: rows at multiples of 16 bytes, packed where they are not.
//   Load      cp.async to swizzled shared memory, a ring of three k-blocks or more (operands.cuh).
//   Loop      the fragments of the next step are read while these multiply (two parts: registers are scarce, and 12 products hide
//             the reads); a block's slot is filled while the next one is multiplied.
//   Order     16 k (TF32: 8) at a time into one accumulator: in half precision the bits of wgmma/kernel.cuh where K is not split.
//             Two parts: the products of 16 k, the small ones first, are summed by the tensor core and added in fp32, since it
//             rounds toward zero. TF32 is rounded to nearest even on its way to mma.sync, as TMA does. Splits are added in order.
//
// Floors: 2 M N K flop (two parts: three times) at the device's rate (plan/machine.h); shared memory delivers 128 bytes a cycle:
// a warp's 64 x 64 x 16 products read 4 KB and take 128 (A100) or 100 cycles of its SM's quarter. Small: a launch and a round
// trip to memory, 1.5 us.
#pragma once
#include "device/ptx/grid.cuh"
#include "device/ptx/mbarrier.cuh"
#include "matmul/mma/store.cuh"

namespace xgemm::matmul {
namespace mma_detail {

/// Waits for a phase of a barrier; sm_80 can only ask.
__device__ __forceinline__ void await(ptx::Barrier* barrier, unsigned parity) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  while (!ptx::barrier_test(barrier, parity)) continue;
#else
  ptx::barrier_wait(barrier, parity);
#endif
}

/// Calls f.operator()<step>() for steps 0 to kSteps - 1.
template <int kSteps, class F>
__device__ __forceinline__ void each_step(const F& f) {
  [&]<int... kStep>(std::integer_sequence<int, kStep...>) {
    (f.template operator()<kStep>(), ...);
  }(std::make_integer_sequence<int, kSteps>{});
}

/// A warp's products.
template <class Shape>
struct Multiplier {
  using T = typename Shape::T;
  static constexpr int kHigh = Shape::kRows / 16, kWide = Shape::kColumns / 16, kParts = Shape::kParts;
  static constexpr bool kAhead = kParts == 1 || kHigh * kWide <= 4;  // else registers are scarce, and 12 products hide reads
  const typename Shape::ReaderA reader_a;
  const typename Shape::ReaderB reader_b;
  typename Shape::Sums sums = {};
  std::uint32_t a[kAhead ? 2 : 1][kParts][kHigh][4], b[kAhead ? 2 : 1][kParts][kWide][4];  // fragments of a step, and of the next
  __device__ __forceinline__ Multiplier(int row, int column, int lane) : reader_a(row, lane), reader_b(column, lane) {}

  __device__ __forceinline__ void read(const unsigned char* slot, int step, int to) {
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
#pragma unroll
      for (int i = 0; i < kHigh; ++i) reader_a.read(a[to][p][i], slot + p * Shape::A::kBytes, i, step);
#pragma unroll
      for (int j = 0; j < kWide; ++j)
        reader_b.read(b[to][p][j], slot + kParts * Shape::A::kBytes + p * Shape::B::kBytes, j, step);
    }
  }
  template <int kCount>
  static __device__ __forceinline__ void round(std::uint32_t (&fragments)[kCount][4]) {
#pragma unroll
    for (auto& fragment : fragments)
#pragma unroll
      for (std::uint32_t& x : fragment) x = ptx::round_to_tf32(x);
  }
  __device__ __forceinline__ void add(float (&to)[4], int from, int part_a, int part_b, int i, int j) const {
    const std::uint32_t(&columns)[4] = b[from][part_b][j / 2];
    ptx::mma<T>(to, a[from][part_a][i], columns[j % 2 * 2], columns[j % 2 * 2 + 1]);
  }
  __device__ __forceinline__ void multiply(int from) {
    if constexpr (sizeof(T) == 4) round(a[from][0]), round(b[from][0]);
#pragma unroll
    for (int i = 0; i < kHigh; ++i)
#pragma unroll
      for (int j = 0; j < 2 * kWide; ++j) {
        if constexpr (kParts == 1) {
          add(sums[i][j], from, 0, 0, i, j);
        } else {
          float sum[4] = {};
          add(sum, from, 1, 0, i, j), add(sum, from, 0, 1, i, j);
#pragma unroll
          for (float& x : sum) x *= kLowUnit;
          add(sum, from, 0, 0, i, j);
#pragma unroll
          for (int c = 0; c < 4; ++c) sums[i][j][c] += sum[c];
        }
      }
  }
  /// Multiplies a block whose first fragments have been read (two parts: which has landed). copy<step>(), of all steps but the
  /// last, copies a part of a later one. done() says that the block's last fragments are read; next() waits until all threads
  /// have said so and the next block has landed, and returns its slot, or null.
  template <class Copy, class Done, class Next>
  __device__ __forceinline__ void block(const unsigned char* slot, const Copy& copy, const Done& done, const Next& next) {
    constexpr int kLast = Shape::kSteps - 1;
    if constexpr (kAhead) {
      each_step<Shape::kSteps>([&]<int kStep>() {
        if constexpr (kStep < kLast) {
          read(slot, kStep + 1, (kStep + 1) % 2);
          copy.template operator()<kStep>();
          if constexpr (kStep + 1 == kLast) done();
        } else if (const unsigned char* const after = next()) {
          read(after, 0, 0);
        }
        multiply(kStep % 2);
      });
    } else {
      each_step<kLast>(copy);
#pragma unroll 2
      for (int step = 0; step <= kLast; ++step) {
        read(slot, step, 0);
        if (step == kLast) done(), next();
        multiply(0);
      }
    }
  }
};

}  // namespace mma_detail

template <class T, MmaTile kTile, bool kAlongKA, bool kAlongKB>
__global__ void __launch_bounds__(geometry(kTile).threads(), info(kTile).per_sm)
    mma_gemm(const __grid_constant__ MmaArguments g) {
  using namespace mma_detail;
  using Shape = Shape<T, kTile, kAlongKA, kAlongKB>;
  using CopiesA = typename Shape::CopiesA;
  using CopiesB = typename Shape::CopiesB;
  constexpr int kStages = Shape::kStages;
  extern __shared__ __align__(1024) unsigned char ring[];
  __shared__ ptx::Barrier met;
  if (threadIdx.x == 0) ptx::barrier_init(&met, Shape::kWarps);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const Problem& p = g.problem;
  const TilePart tile = locate<Shape>(g, warp);
  const Origins from = origins<Shape>(p, tile);
  CopiesA of_a(g.a, from.a, std::int64_t{sizeof(T)} * (kAlongKA ? p.a.row_stride : p.a.col_stride), tile.rows, tile.depth);
  CopiesB of_b(g.b, from.b, std::int64_t{sizeof(T)} * (kAlongKB ? p.b.col_stride : p.b.row_stride), tile.columns, tile.depth);
  const int blocks = (tile.depth + Shape::kBlockK - 1) / Shape::kBlockK, whole = tile.depth / Shape::kBlockK;
  int copied = 0, filling = 0, reading = 0;  // a block's number; offsets of slots
  const auto after = [](int slot) { return slot + Shape::kSlot == kStages * Shape::kSlot ? 0 : slot + Shape::kSlot; };
  const auto panel_b = [&](int slot) { return ring + slot + Shape::kParts * Shape::A::kBytes; };
  /// What step kStep copies of a block: the rest of a step's instructions hide so many copies.
  const auto copy = [&]<int kStep>() {
    constexpr int kOf = Shape::kSteps - 1, kA = CopiesA::kCopies, kB = CopiesB::kCopies;
    of_a.template issue<kA * kStep / kOf, kA*(kStep + 1) / kOf>(ring + filling, copied < whole);
    of_b.template issue<kB * kStep / kOf, kB*(kStep + 1) / kOf>(panel_b(filling), copied < whole);
  };
  const auto copied_all = [&] {
    const int before = (filling == 0 ? kStages * Shape::kSlot : filling) - Shape::kSlot;
    of_a.finish(ring + filling, ring + before, copied < whole, copied < blocks);
    of_b.finish(panel_b(filling), panel_b(before), copied < whole, copied < blocks);
    ++copied, filling = after(filling);
    cp_async_commit();  // an empty group too: the wait counts groups
  };

  ptx::grid_wait();
  ptx::grid_release();
#pragma unroll 1
  for (int i = 0; i < kStages - 1; ++i) each_step<Shape::kSteps - 1>(copy), copied_all();
  Multiplier<Shape> multiplier(tile.warp_row, tile.warp_column, lane);
  cp_async_wait<kStages - 2>();
  __syncthreads();
  if constexpr (multiplier.kAhead) multiplier.read(ring, 0, 0);
  unsigned parity = 0;
#pragma unroll 1
  for (int block = 0; block < blocks; ++block) {
    // Said early and awaited late, so that the warps of an SM's quarter need not meet between their products.
    const auto done = [&] {
      cp_async_wait<kStages - 3>();  // the next block; the one after it is not committed yet
      __syncwarp();
      if (lane == 0) ptx::barrier_arrive(&met);
    };
    multiplier.block(ring + reading, copy, done, [&]() -> const unsigned char* {
      copied_all();
      await(&met, parity);
      parity ^= 1, reading = after(reading);
      return block + 1 < blocks ? ring + reading : nullptr;
    });
  }
  cp_async_wait<0>();
  __syncthreads();  // the sums overwrite the slots
  store_tile<Shape>(g, tile, multiplier.sums, ring + warp * Shape::kStaging);
}

}  // namespace xgemm::matmul
