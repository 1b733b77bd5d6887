// fp64 products on Hopper's tensor cores (sm_90a): out = epilogue(A B), A m x k, B k x n, any strides, any batch. Sizes, tiles
// and splits under 2^31. Design: docs/matmul.md.
//
//   Load    A producer warpgroup copies k-blocks of 16 into a ring: cp.async of 16 bytes if base and strides allow, else of 8.
//           Of a slot's two mbarriers, one says that its copies have landed, one that all consumers have read it.
//   Shared  [line][k] if the operand is contiguous along k, else [k][line]; read one element at a time, without bank conflicts.
//   Order   plan.h: segments of k, each from zero, added in order: by the CTA, which keeps a total beside the ring, or by
//           fp64_finish if several CTAs share a tile's k.
//   Store   alpha and bias alone from registers; else through the warp's own shared memory, whole sectors along a row.
//
// Floors: 2 m n k flop at 256 per cycle and SM (67 TFLOP/s on an H200); bytes of A, B and C once. Per k, shared memory supplies
// 640 bytes to a warp of 48 x 32, at 53 of its 128 bytes per cycle; CTAs of 96 x 64 take 27 bytes per cycle and SM from L2.
#pragma once
#include "device/ptx/grid.cuh"
#include "device/ptx/mma_f64.cuh"
#include "device/ptx/warpgroup.cuh"
#include "matmul/fp64_mma/store.cuh"

namespace xgemm::matmul {

template <Fp64Tile kTile, bool kAlongKA, bool kAlongKB>
__global__ void __launch_bounds__(geometry(kTile).threads(), geometry(kTile).per_sm)
    fp64_mma(const __grid_constant__ Fp64Arguments g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Shape = fp64_detail::Shape<kTile, kAlongKA, kAlongKB>;
  using A = typename Shape::A;
  using B = typename Shape::B;
  constexpr Fp64Geometry kInfo = Shape::kInfo;
  constexpr int kMostSlots = fp64_detail::kMostSlots, kHigh = Shape::kHigh, kWide = Shape::kWide;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  const Pipeline<kMostSlots> pipeline{reinterpret_cast<ptx::Barrier*>(shared_memory)};
  double* const ring = reinterpret_cast<double*>(shared_memory + fp64_detail::kPipelineBytes);
  const int slots = g.totals ? kInfo.slots_beside_totals : kInfo.slots;

  if (threadIdx.x < kMostSlots) {
    ptx::barrier_init(&pipeline.full[threadIdx.x], Fp64Geometry::kProducers);
    ptx::barrier_init(&pipeline.empty[threadIdx.x], kInfo.consumers());
    ptx::fence_barrier_init();
  }
  const Problem& p = g.problem;
  const fp64_detail::Item<Shape> item(g);
  const int first = item.split * g.split_blocks, end = min(g.blocks, first + g.split_blocks);
  const std::int64_t k0 = std::int64_t{first} * kFp64TileK;
  const auto start = [&](const Operand& x, std::int64_t line, std::int64_t line_stride, std::int64_t k_stride) {
    return static_cast<const double*>(x.data) + (item.batch ? batch_offset(p, x, item.batch) : 0) + line * line_stride +
           k0 * k_stride;
  };
  A of_a(start(p.a, item.row, p.a.row_stride, p.a.col_stride), p.a.row_stride, p.a.col_stride, static_cast<int>(p.m) - item.row,
         g.vectors_a);
  B of_b(start(p.b, item.column, p.b.col_stride, p.b.row_stride), p.b.col_stride, p.b.row_stride,
         static_cast<int>(p.n) - item.column, g.vectors_b);
  PipelineState<kMostSlots> filling, reading;
  __syncthreads();
  ptx::grid_wait();
  ptx::grid_release();
  constexpr int kProducerRegisters = 40;
  if (threadIdx.x >= kInfo.consumers()) {
    ptx::release_registers<kProducerRegisters>();
#pragma unroll 1
    for (int block = first; block < end; ++block) {
      const int depth = static_cast<int>(p.k) - block * kFp64TileK;
      ptx::Barrier* const landed = pipeline.acquire(filling);
      double* const slot = ring + filling.slot * Shape::kSlot;
      of_a.copy(slot, p.a.row_stride, p.a.col_stride, depth, g.vectors_a);
      of_b.copy(slot + A::kDoubles, p.b.col_stride, p.b.row_stride, depth, g.vectors_b);
      ptx::barrier_arrive_copies(landed);
      filling.advance(slots);
    }
    cp_async_commit();
    cp_async_wait<0>();
    return;
  }
  constexpr int kConsumers = kInfo.consumers(), kRegisters = kInfo.registers() * kInfo.threads();
  ptx::acquire_registers<(kRegisters - kProducerRegisters * Fp64Geometry::kProducers) / kConsumers / 8 * 8>();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int reader_a = A::reader(Shape::warp_row(warp), lane), reader_b = B::reader(Shape::warp_column(warp), lane);
  typename Shape::Sums sums = {};
  // Registers have A's fragments of the warp's whole k-block; of B's, the one in use and the next. A fragment is read again,
  // from the next k-block, as soon as its last product has begun: so products never wait for reads.
  double fa[kHigh][2][4], fb[2][4];
  const auto read_a = [&](int i) {
    const double* const panel = ring + reading.slot * Shape::kSlot;
#pragma unroll
    for (int h = 0; h < 2; ++h) A::read(fa[i][h], panel, reader_a, 16 * i + 8 * h);
  };
  const auto read_b = [&](int j) { B::read(fb[j % 2], ring + reading.slot * Shape::kSlot + A::kDoubles, reader_b, 8 * j); };

  if (first < end) pipeline.wait(reading);
  read_b(0);
#pragma unroll
  for (int i = 0; i < kHigh; ++i) read_a(i);
  int segment_end = first + g.segment;
#pragma unroll 1
  for (int block = first; block < end; ++block) {
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
      const bool last = j + 1 == kWide;
      if (!last) read_b(j + 1);
#pragma unroll
      for (int i = 0; i < kHigh; ++i) {
        ptx::mma_f64(sums[i][j], fa[i], fb[j % 2]);
        if (last && i == 0) {
          pipeline.release(reading.slot);
          reading.advance(slots);
          if (block + 1 < end) pipeline.wait(reading);
          read_b(0);
        }
        if (last) read_a(i);
      }
    }
    if (block + 1 < min(segment_end, end)) continue;
    // The segment ends. Its sums are stored, unless they are the last ones of C.
    if (g.partial) {
      fp64_detail::store_plain<Shape, true>(sums, g, block / g.segment);
    } else if (g.totals) {
      double* const totals = ring + slots * Shape::kSlot + 2 * thread_index();  // pairs, kConsumers apart
      int at = 0;
      fp64_detail::each_pair<Shape>([&](int i, int j, int h) {
        double* const total = totals + 2 * kConsumers * at++;
        double &x = sums[i][j][2 * h], &y = sums[i][j][2 * h + 1];
        if (block >= g.segment) {
          const auto before = load_vector<2>(total);
          x = before[0] + x, y = before[1] + y;
        }
        if (block + 1 < end) store_vector(total, Vector<double, 2>{{x, y}});
      });
    }
    if (block + 1 < end) {
#pragma unroll
      for (int i = 0; i < kHigh; ++i)
#pragma unroll
        for (int j = 0; j < kWide; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) sums[i][j][e] = 0;
    }
    segment_end += g.segment;
  }
  if (g.partial) return;
  if (g.plain) return fp64_detail::store_plain<Shape, false>(sums, g, 0);
  ptx::named_barrier_sync(1, kConsumers);  // the stages overwrite the slots
  fp64_detail::store<Shape>(sums, g, ring);
#endif
}

inline constexpr int kFp64FinishThreads = 128;

/// Adds the segments' sums to C.
__global__ void __launch_bounds__(kFp64FinishThreads) fp64_finish(const __grid_constant__ Fp64Arguments g) {
  const Problem& p = g.problem;
  const std::int64_t matrix = p.m * p.n, count = p.batches * matrix;
  const int segments = (g.blocks + g.segment - 1) / g.segment;
  ptx::grid_wait();
  ptx::grid_release();
  for (std::int64_t i = std::int64_t{blockIdx.x} * kFp64FinishThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kFp64FinishThreads) {
    const std::int64_t batch = i / matrix, within = i - batch * matrix, row = within / p.n;
    const double* from = g.partial + i;
    double sum = *from;
#pragma unroll 16
    for (int segment = 1; segment < segments; ++segment) sum += *(from += count);
    static_cast<double*>(p.out)[i] = make_epilogue<double, double>(p, batch)(sum, row, within - row * p.n);
  }
}

}  // namespace xgemm::matmul
