// Half-precision products that are small, or tall and narrow, and fp32 products in tf32 of operands as TMA cannot load them or
// wgmma cannot read them (sm_90: on others mma.sync need not round as wgmma does): one launch, one CTA per tile of C (fp32: or
// per split of its K, store.cuh). out = epilogue(A B), A m x k, B k x n, each contiguous along one of its dims, at any address;
// any batch. Sizes and tiles under 2^30. Design: docs/matmul.md; operands and their layout in shared memory: panels.cuh.
//
//   Load    cp.async of 16 bytes to swizzled shared memory, up to `stages` k-blocks of 128 bytes (64 or 32 k) in flight.
//           Unaligned rows: 4 bytes (fp32: or 8), or through registers by element.
//   Order   k (of a split) goes through mma.sync 16 (fp32: 8) at a time, in order, into one accumulator: the bits of half
//           precision are those of wgmma/kernel.cuh where it does not split K. fp32 is rounded to tf32 as TMA does, to nearest
//           even, on its way from shared memory to registers.
//   Store   through the warp's own shared memory, 16 bytes at a time (any epilogue: four elements), or one element at a time if
//           N is not a multiple of them.
//
// Floor: its bytes; below 256 a side a launch and a round trip to memory, 1.5 us. A k-block costs at least the latency of four
// dependent mma, 130 cycles.
#pragma once
#include <algorithm>

#include "device/integer.h"
#include "device/launch.h"
#include "device/ptx/cp_async.cuh"
#include "device/ptx/grid.cuh"
#include "device/ptx/mma.cuh"
#include "matmul/dispatch.h"
#include "matmul/launch.h"
#include "matmul/mma/store.cuh"

namespace xgemm::matmul {

namespace mma_detail {

/// The producer's side, of which each thread does a part: copies k-blocks to a ring of slots.
template <class Shape>
class Copier {
  using A = typename Shape::A;
  using B = typename Shape::B;
  static constexpr int kSlot = Shape::kSlot;
  const MmaArguments& g;
  unsigned char* const ring;
  const int ring_bytes, whole;
  int next = 0;  // offset of the slot to fill
  A of_a;
  B of_b;
  typename A::Pairs pairs_a;  // of the last block that was asked for, where elements are copied
  typename B::Pairs pairs_b;

 public:
  const int blocks;
  __device__ __forceinline__ Copier(const MmaArguments& arguments, const TilePart& tile, const Origin<typename Shape::T>& from,
                                    unsigned char* memory)
      : g(arguments),
        ring(memory),
        ring_bytes(arguments.slots * kSlot),
        whole(static_cast<int>(static_cast<unsigned>(from.depth) / A::kDepth)),
        of_a(from.a, arguments.problem.a.row_stride, arguments.problem.a.col_stride, tile.rows, from.depth),
        of_b(from.b, arguments.problem.b.col_stride, arguments.problem.b.row_stride, tile.columns, from.depth),
        blocks(static_cast<int>(static_cast<unsigned>(from.depth + A::kDepth - 1) / A::kDepth)) {}

  __device__ __forceinline__ void start(int block) {
    unsigned char* const to = ring + next;
    if constexpr (Shape::kUnaligned) {
      unsigned char* const before = ring + (next == 0 ? ring_bytes : next) - kSlot;
      if (Shape::kPairs && block > 0 && block <= blocks) {
        if (g.bytes_a == 2) A::store(pairs_a, before);
        if (g.bytes_b == 2) B::store(pairs_b, before + A::kBytes);
      }
      if (block < blocks) {
        of_a.copy_unaligned(g.bytes_a, pairs_a, to), of_b.copy_unaligned(g.bytes_b, pairs_b, to + A::kBytes);
      }
    } else if (block < whole) {
      of_a.template copy<true>(to), of_b.template copy<true>(to + A::kBytes);
    } else if (block < blocks) {
      of_a.template copy<false>(to), of_b.template copy<false>(to + A::kBytes);
    }
    next = next + kSlot == ring_bytes ? 0 : next + kSlot;
    cp_async_commit();  // an empty group too: the wait counts groups
  }
};

/// The consumer's side of a warp.
template <class Shape>
class Multiplier {
  static constexpr int kHigh = Shape::kRows / 16, kWide = Shape::kColumns / 16;
  unsigned char* const ring;
  const int ring_bytes;
  int slot = 0;  // offset of the slot to read
  const typename Shape::ReaderA reader_a;
  const typename Shape::ReaderB reader_b;
  const unsigned char *panel_a, *panel_b;
  std::uint32_t fa[kSteps][kHigh][4], fb[kSteps][kWide][4];  // a block's fragments

 public:
  __device__ __forceinline__ Multiplier(unsigned char* memory, int bytes, int row, int column, int lane)
      : ring(memory), ring_bytes(bytes), reader_a(row, lane), reader_b(column, lane) {}

  /// Barrier: all threads' copies of the next block have arrived, and all threads have read the block before.
  __device__ __forceinline__ void meet() {
    __syncthreads();
    panel_a = ring + slot, panel_b = panel_a + Shape::A::kBytes;
    slot = slot + Shape::kSlot == ring_bytes ? 0 : slot + Shape::kSlot;
  }
  __device__ __forceinline__ void read(int step) {
#pragma unroll
    for (int i = 0; i < kHigh; ++i) reader_a.read(fa[step][i], panel_a, i, step);
#pragma unroll
    for (int j = 0; j < kWide; ++j) reader_b.read(fb[step][j], panel_b, j, step);
    if constexpr (sizeof(typename Shape::T) == 4) {
#pragma unroll
      for (auto& fragment : fa[step])
#pragma unroll
        for (std::uint32_t& x : fragment) x = ptx::round_to_tf32(x);
#pragma unroll
      for (auto& fragment : fb[step])
#pragma unroll
        for (std::uint32_t& x : fragment) x = ptx::round_to_tf32(x);
    }
  }
  /// Adds a block's products. kAhead: its fragments have been read; reads the next block's, if there are `more`, because the few
  /// products of a small tile would wait for each read.
  __device__ __forceinline__ void multiply(typename Shape::Sums& sums, bool more) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (Shape::kAhead == 0) read(step);
#pragma unroll
      for (int i = 0; i < kHigh; ++i)
#pragma unroll
        for (int j = 0; j < 2 * kWide; ++j)
          ptx::mma<typename Shape::T>(sums[i][j], fa[step][i], fb[step][j / 2][j % 2 * 2], fb[step][j / 2][j % 2 * 2 + 1]);
      if (Shape::kAhead > 0 && more) read(step);
    }
  }
};

/// The bias of the lane's columns, from `column` on. Adding -0 changes nothing.
template <class T, int kCount>
__device__ __forceinline__ void load_bias(float (&add)[kCount][2], const MmaArguments& g, int column, int lane) {
  const Problem& p = g.problem;
  const T* const bias = g.plain ? static_cast<const T*>(p.bias.data) : nullptr;
#pragma unroll
  for (int j = 0; j < kCount; ++j)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int at = min(column + 8 * j + lane % 4 * 2 + c, static_cast<int>(p.n) - 1);
      add[j][c] = bias ? convert<float>(bias[at * p.bias.col_stride]) : -0.f;
    }
}

}  // namespace mma_detail

/// kUnaligned: g.bytes_a or g.bytes_b is less than 16.
template <class T, MmaTile kTile, bool kAlongKA, bool kAlongKB, bool kUnaligned>
__global__ void __launch_bounds__(mma_detail::Shape<T, kTile, kAlongKA, kAlongKB, kUnaligned>::kThreads,
                                  mma_detail::Shape<T, kTile, kAlongKA, kAlongKB, kUnaligned>::kBeside)
    mma_gemm(const __grid_constant__ MmaArguments g) {
  using namespace mma_detail;
  using Shape = Shape<T, kTile, kAlongKA, kAlongKB, kUnaligned>;
  constexpr int kStages = Shape::kStages, kAhead = Shape::kAhead;
  extern __shared__ __align__(1024) unsigned char ring[];
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int warp_row = warp / Shape::kInfo.warps_columns * Shape::kRows,
            warp_column = warp % Shape::kInfo.warps_columns * Shape::kColumns;
  const TilePart tile = locate<Shape>(g);
  Copier<Shape> copier(g, tile, origin_of<Shape>(g, tile), ring);
  Multiplier<Shape> multiplier(ring, g.slots * Shape::kSlot, warp_row, warp_column, lane);

  ptx::grid_wait();
  ptx::grid_release();
#pragma unroll 1
  for (int block = 0; block < kStages - 1 + kAhead; ++block) copier.start(block);
  float add[Shape::kColumns / 8][2];
  if constexpr (!Shape::kSplits) load_bias<T>(add, g, tile.column + warp_column, lane);
  if constexpr (kAhead > 0) {
    cp_async_wait<kStages - 1>();
    multiplier.meet();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) multiplier.read(step);
  }
  typename Shape::Sums sums = {};
#pragma unroll 1
  for (int block = 0; block < copier.blocks; ++block) {
    const bool more = block + kAhead < copier.blocks;
    if (more) {
      cp_async_wait<kStages - 2>();
      multiplier.meet();
    }
    multiplier.multiply(sums, more);
    copier.start(block + kStages - 1 + kAhead);
  }
  if constexpr (Shape::kSplits)
    if (gridDim.y > 1) return add_tile_splits<Shape>(g, tile, warp_row, warp_column, sums);
  if constexpr (Shape::kSplits) load_bias<T>(add, g, tile.column + warp_column, lane);  // registers are scarce before
  __syncthreads();                                                                      // the sums overwrite the slots
  const WarpStore<T, Shape> store{g, tile, warp_row, warp_column, ring + warp * (Shape::kSums / Shape::kWarps)};
  if (g.plain)
    store.plain(sums, add);
  else
    store.any(sums);
}

template <class T, MmaTile kTile>
void launch_mma_tile(const Problem& p, const MmaPlan& plan, void* counters, float* partials, cudaStream_t stream) {
  constexpr MmaGeometry kInfo = geometry(kTile);
  const std::int64_t columns = ceil_div(p.n, kInfo.columns), tiles = ceil_div(p.m, kInfo.rows) * columns;
  MmaArguments args{.problem = p,
                    .bytes_a = plan.bytes_a,
                    .bytes_b = plan.bytes_b,
                    .plain = has_plain_epilogue(p),
                    .slots = 0,
                    .columns = static_cast<unsigned>(columns),
                    .tiles = static_cast<unsigned>(tiles),
                    .split_blocks = static_cast<int>(plan.split_blocks),
                    .meetings = static_cast<Meeting*>(counters),
                    .partials = partials};
  const auto launch = [&]<bool kAlongKA, bool kAlongKB, bool kUnaligned>() {
    using Shape = mma_detail::Shape<T, kTile, kAlongKA, kAlongKB, kUnaligned>;
    constexpr auto kGemm = mma_gemm<T, kTile, kAlongKA, kAlongKB, kUnaligned>;
    allow_shared<kGemm, Shape::shared_bytes(Shape::kStages)>();
    args.slots = static_cast<int>(std::min<std::int64_t>(Shape::kStages, plan.split_blocks));
    enqueue(kGemm,
            {.blocks = {static_cast<unsigned>(tiles * p.batches), static_cast<unsigned>(plan.splits)},
             .threads = Shape::kThreads,
             .shared_bytes = static_cast<std::size_t>(Shape::shared_bytes(args.slots)),
             .early = true},
            stream, args);
  };
  dispatch_flags(a_along_k(p), b_along_k(p), [&]<bool kAlongKA, bool kAlongKB>() {
    if constexpr (!is_tf32(kTile))  // of fp32 one kernel for both: few instantiations
      if (!plan.is_unaligned()) return launch.template operator()<kAlongKA, kAlongKB, false>();
    launch.template operator()<kAlongKA, kAlongKB, true>();
  });
}

template <class T>
void launch_mma(const Problem& p, const MmaPlan& plan, void* counters, float* partials, cudaStream_t stream) {
  dispatch_tile<kMmaTiles.size()>(plan.tile, [&]<MmaTile kTile>() {
    if constexpr (is_tf32(kTile) == (sizeof(T) == 4)) launch_mma_tile<T, kTile>(p, plan, counters, partials, stream);
  });
}

}  // namespace xgemm::matmul
