// fp64 products on Hopper's tensor cores: out = epilogue(A B), A m x k, B k x n, any strides, any batch.
//
//   Load    cp.async of 16 bytes where base and strides allow, else of 8, by all threads into a ring of k-blocks of 16. A slot's
//           two mbarriers say that its copies have landed and that all warps have read it; no barrier stops the whole CTA.
//   Shared  an operand contiguous along k lies [line][k], else [k][line]; both are read an element at a time, as mma wants them
//   in
//           registers (pairs would have to be moved), without bank conflicts.
//   Order   fp64_plan.h: segments of k, each from zero, added in order: by the CTA, which keeps a total beside the ring, or by
//           fp64_finish where several CTAs share a tile's k.
//   Store   through shared memory, each warp its own, whole sectors along a row.
//   Archs   sm_90a. Limits: sizes, tiles and splits under 2^31.
//
// Floors: 2 m n k flop at 256 a cycle and multiprocessor (67 TFLOP/s on an H200); bytes of A, B and C once. Shared memory gives a
// warp of 64 x 32 768 bytes a k, 48 of 128 a cycle; a tile of 128 x 128 takes 16 bytes a cycle from L2.
#pragma once
#include "device/pipeline.cuh"
#include "device/ptx/cp_async.cuh"
#include "device/ptx/grid.cuh"
#include "device/ptx/mma_f64.cuh"
#include "device/tile_order.cuh"
#include "device/vector.cuh"
#include "matmul/fp64_plan.h"
#include "matmul/kernels/epilogue.cuh"

namespace xgemm::matmul {

struct Fp64Arguments {
  Problem problem;
  bool vectors_a, vectors_b;  ///< 16 bytes a copy, else 8
  bool totals;                ///< a CTA has several segments and writes C
  unsigned rows, columns;     ///< tiles of a batch
  unsigned tiles;             ///< of all batches
  int blocks, segment;        ///< k-blocks of K, of a segment
  int share;                  ///< k-blocks of a CTA
  double* partial;            ///< [segment][batch][m][n] where CTAs share a tile's k
};

namespace fp64_detail {

inline constexpr int kMostSlots = 8, kPipelineBytes = 128;
static_assert(Pipeline<kMostSlots>::kBytes == kPipelineBytes);

/// threadIdx.x, read anew, so that what follows from it does not wait in registers through the main loop.
__device__ __forceinline__ int thread_index() {
  unsigned thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return static_cast<int>(thread);
}

/// One operand's k-block in shared memory, and how kThreads threads copy it there.
template <int kLines, bool kAlongK, int kThreads>
struct Panel {
  static constexpr int kDoubles = kLines * kFp64TileK;

  /// Of element (line, k): pieces of 16 bytes are exchanged so that half a warp reads all banks.
  static __device__ __forceinline__ int place(int line, int k) {
    return kAlongK ? line * kFp64TileK + ((k / 2) ^ (line % 4 * 2)) * 2 + k % 2
                   : k * kLines + ((line / 2) ^ (k % 4 * 2)) * 2 + line % 2;
  }

  /// From `from`, at the block's first k. Lines from `lines` on are zero, and so is k from `depth` on.
  static __device__ __forceinline__ void copy(double* panel, const double* from, std::int64_t line_stride, std::int64_t k_stride,
                                              int lines, int depth, bool vectors) {
    const auto move = [&]<int kWidth>() {
      constexpr int kPieces = (kAlongK ? kFp64TileK : kLines) / kWidth, kAcross = kAlongK ? kLines : kFp64TileK;
      constexpr int kStep = kThreads / kPieces, kCount = kAcross / kStep;
      static_assert(kStep * kPieces == kThreads && kCount * kStep == kAcross && kCount > 0);
      const int thread = thread_index(), along = thread % kPieces * kWidth, first = thread / kPieces;
      const int bytes = min(max((kAlongK ? depth : lines) - along, 0), kWidth) * 8, across = kAlongK ? lines : depth;
      const std::int64_t across_stride = kAlongK ? line_stride : k_stride;
      const double* src = from + along * (kAlongK ? k_stride : line_stride) + first * across_stride;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int at = first + i * kStep;
        cp_async<8 * kWidth>(panel + (kAlongK ? place(at, along) : place(along, at)), src, at < across ? bytes : 0);
        src += kStep * across_stride;
      }
    };
    if (vectors)
      move.template operator()<2>();
    else
      move.template operator()<1>();
  }

  /// A lane's part of the 8 lines from `line` (a multiple of 16) + `more`: line lane / 4 of them, k = 4 i + lane % 4.
  static __device__ __forceinline__ void read(double (&values)[4], const double* panel, int line, int more, int lane) {
    panel += line * (kAlongK ? kFp64TileK : 1);  // changes no exchange
#pragma unroll
    for (int i = 0; i < 4; ++i)
      values[i] = panel[more / 16 * 16 * (kAlongK ? kFp64TileK : 1) + place(more % 16 + lane / 4, 4 * i + lane % 4)];
  }
};

template <Fp64Tile kTile, bool kAlongKA, bool kAlongKB>
struct Shape {
  static constexpr Fp64TileInfo kInfo = info(kTile);
  static constexpr int kRows = kInfo.rows / kInfo.warps_rows, kColumns = kInfo.columns / kInfo.warps_columns;  // of a warp
  static constexpr int kHigh = kRows / 16, kWide = kColumns / 8;                                               // mmas of a warp
  static __device__ __forceinline__ int warp_row(int warp) { return warp / kInfo.warps_columns * kRows; }
  static __device__ __forceinline__ int warp_column(int warp) { return warp % kInfo.warps_columns * kColumns; }
  using A = Panel<kInfo.rows, kAlongKA, kInfo.threads()>;
  using B = Panel<kInfo.columns, kAlongKB, kInfo.threads()>;
  static constexpr int kSlot = A::kDoubles + B::kDoubles;
  static constexpr int kTurn = kHigh < 2 ? kHigh : 2;   // blocks of 16 rows that a warp stores at a time
  static constexpr int kStage = kTurn * 16 * kColumns;  // doubles
  static_assert(kInfo.shared_bytes(false) >= 8 * kStage * kInfo.threads() / 32);
  static_assert(kInfo.slots <= kMostSlots && kInfo.slots_beside_totals <= kMostSlots);
  /// Element 2 h + c of [i][j] is row 16 i + lane / 4 + 8 h, column 8 j + 2 (lane % 4) + c.
  using Sums = double[kHigh][kWide][4];
};

/// Calls f(i, j, h): the pair of columns from 8 j + 2 (lane % 4) on of row 16 i + lane / 4 + 8 h.
template <class Shape, class F>
__device__ __forceinline__ void each_pair(const F& f) {
#pragma unroll
  for (int i = 0; i < Shape::kHigh; ++i)
#pragma unroll
    for (int j = 0; j < Shape::kWide; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) f(i, j, h);
}

/// The CTA's tile, and which of the CTAs that share its k.
template <class Shape>
struct Item {
  unsigned split, batch;
  int row, column;  ///< the tile's first
  __device__ __forceinline__ explicit Item(const Fp64Arguments& g) {
    unsigned block;  // read anew, as thread_index()
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    split = block / g.tiles;
    const TilePlace tile = tile_at<12>(block - split * g.tiles, g.rows, g.columns);
    row = static_cast<int>(tile.row) * Shape::kInfo.rows, column = static_cast<int>(tile.column) * Shape::kInfo.columns;
    batch = tile.batch;
  }
};

/// A segment's sums to the workspace.
template <class Shape>
__device__ __forceinline__ void store_partial(const typename Shape::Sums& sums, const Fp64Arguments& g, int segment) {
  const Problem& p = g.problem;
  const Item<Shape> item(g);
  const int thread = thread_index(), lane = thread % 32, n = static_cast<int>(p.n);
  const int row = item.row + Shape::warp_row(thread / 32) + lane / 4,
            column = item.column + Shape::warp_column(thread / 32) + lane % 4 * 2;
  const int rows = static_cast<int>(p.m) - row, columns = n - column;
  double* const to = g.partial + ((segment * p.batches + item.batch) * p.m + row) * p.n + column;
  const bool pairs = n % 2 == 0;
  each_pair<Shape>([&](int i, int j, int h) {
    if (16 * i + 8 * h >= rows) return;
    double* const at = to + (16 * i + 8 * h) * p.n + 8 * j;
    const int left = columns - 8 * j;
    if (pairs) {
      if (left > 0) store_vector(at, Vector<double, 2>{{sums[i][j][2 * h], sums[i][j][2 * h + 1]}});
    } else {
      if (left > 0) at[0] = sums[i][j][2 * h];
      if (left > 1) at[1] = sums[i][j][2 * h + 1];
    }
  });
}

/// The warp's sums to C by way of its own part of `stages`.
template <class Shape>
__device__ __forceinline__ void store(const typename Shape::Sums& sums, const Fp64Arguments& g, double* stages) {
  constexpr int kColumns = Shape::kColumns, kTurn = Shape::kTurn;
  const Problem& p = g.problem;
  const Item<Shape> item(g);
  const int thread = thread_index(), lane = thread % 32;
  const int row0 = item.row + Shape::warp_row(thread / 32), column0 = item.column + Shape::warp_column(thread / 32);
  double* const stage = stages + thread / 32 * Shape::kStage;
  const auto e = make_epilogue<double, double>(p, item.batch);
  double* const out = static_cast<double*>(p.out) + item.batch * p.m * p.n;
  const int last_row = static_cast<int>(p.m) - 1, last_column = static_cast<int>(p.n) - 1;
  const bool pairs = p.n % 2 == 0;  // neighbours in a row are an aligned access: the base is the allocator's
  const auto place = [](int row, int column) { return row * kColumns + ((column / 2) ^ (row % 2 * 4)) * 2 + column % 2; };
#pragma unroll 1
  for (int turn = 0; turn < Shape::kHigh; turn += kTurn) {
    if (row0 + 16 * turn > last_row) break;
    each_pair<Shape>([&](int i, int j, int h) {  // registers have no run-time index; what follows stands in the code once
      if (i / kTurn * kTurn == turn)
        store_vector(stage + place(i % kTurn * 16 + lane / 4 + 8 * h, 8 * j + lane % 4 * 2),
                     Vector<double, 2>{{sums[i][j][2 * h], sums[i][j][2 * h + 1]}});
    });
    __syncwarp();
#pragma unroll 1
    for (int at = lane; at < kTurn * 8 * kColumns; at += 32) {
      // Two elements a lane: neighbours in a row, or in a column where rows begin at odd places.
      const int r = pairs ? at / (kColumns / 2) : at / kColumns * 2, c = pairs ? at % (kColumns / 2) * 2 : at % kColumns;
      const int down = pairs ? 0 : 1, right = 1 - down;
      const int row = row0 + 16 * turn + r, column = column0 + c;
      const std::int64_t rows[2] = {min(row, last_row), min(row + down, last_row)};
      const std::int64_t columns[2] = {min(column, last_column), min(column + right, last_column)};
      double x[2] = {stage[place(r, c)], stage[place(r + down, c + right)]};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        x[i] = fma(e.alpha, x[i], 0.);  // + 0: see epilogue.cuh
        if (e.c) x[i] = fma(e.beta, e.c[rows[i] * e.c_row + columns[i] * e.c_col], x[i]);
        if (e.bias) x[i] = plus(x[i], e.bias[columns[i] * e.bias_col]);
      }
      activate_all<double>(x, e.activation);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (e.residual) x[i] = plus(x[i], e.residual[rows[i] * e.residual_row + columns[i] * e.residual_col]);
        if (e.factor) x[i] = fma(x[i], e.factor[rows[i] * e.factor_row + columns[i]], 0.);
      }
      if (row > last_row || column > last_column) continue;
      double* const to = out + row * p.n + column;
      if (pairs) {
        store_vector(to, Vector<double, 2>{{x[0], x[1]}});
      } else {
        to[0] = x[0];
        if (row < last_row) to[p.n] = x[1];
      }
    }
    __syncwarp();
  }
}

}  // namespace fp64_detail

template <Fp64Tile kTile, bool kAlongKA, bool kAlongKB>
__global__ void __launch_bounds__(info(kTile).threads(), info(kTile).per_sm) fp64_mma(const __grid_constant__ Fp64Arguments g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Shape = fp64_detail::Shape<kTile, kAlongKA, kAlongKB>;
  using A = typename Shape::A;
  using B = typename Shape::B;
  constexpr Fp64TileInfo kInfo = Shape::kInfo;
  constexpr int kMostSlots = fp64_detail::kMostSlots, kHigh = Shape::kHigh, kWide = Shape::kWide;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  const Pipeline<kMostSlots> pipeline{reinterpret_cast<ptx::Barrier*>(shared_memory)};
  double* const ring = reinterpret_cast<double*>(shared_memory + fp64_detail::kPipelineBytes);
  const int slots = g.totals ? kInfo.slots_beside_totals : kInfo.slots;

  if (threadIdx.x == 0) {
    pipeline.init(kInfo.threads(), kInfo.threads() / 32);
    ptx::fence_barrier_init();
  }
  const Problem& p = g.problem;
  const fp64_detail::Item<Shape> item(g);
  const int rows = static_cast<int>(p.m) - item.row, columns = static_cast<int>(p.n) - item.column;
  const int first = static_cast<int>(item.split) * g.share, end = min(g.blocks, first + g.share);
  const std::int64_t k0 = std::int64_t{first} * kFp64TileK;
  const double* a =
      static_cast<const double*>(p.a.data) + batch_offset(p, p.a, item.batch) + item.row * p.a.row_stride + k0 * p.a.col_stride;
  const double* b = static_cast<const double*>(p.b.data) + batch_offset(p, p.b, item.batch) + item.column * p.b.col_stride +
                    k0 * p.b.row_stride;
  int depth = static_cast<int>(p.k - k0), to_copy = end - first;  // k and blocks that are not copied yet
  PipelineState<kMostSlots> filling, reading;
  const auto copy_next = [&] {
    if (to_copy <= 0) return;
    ptx::Barrier* const landed = pipeline.acquire(filling);
    double* const slot = ring + filling.slot * Shape::kSlot;
    A::copy(slot, a, p.a.row_stride, p.a.col_stride, rows, depth, g.vectors_a);
    B::copy(slot + A::kDoubles, b, p.b.col_stride, p.b.row_stride, columns, depth, g.vectors_b);
    ptx::barrier_arrive_copies(landed);
    a += kFp64TileK * p.a.col_stride, b += kFp64TileK * p.b.row_stride;
    depth -= kFp64TileK, --to_copy;
    filling.advance(slots);
  };

  __syncthreads();
  ptx::grid_wait();
  ptx::grid_release();
#pragma unroll 1
  for (int i = 0; i < slots - 1; ++i) copy_next();
  typename Shape::Sums sums = {};
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = Shape::warp_row(warp), warp_column = Shape::warp_column(warp);
  int segment = first / max(g.segment, 1), left = g.segment;  // of the segment, k-blocks to come
#pragma unroll 1
  for (int block = first; block < end; ++block) {
    pipeline.wait(reading);
    const double* const panel_a = ring + reading.slot * Shape::kSlot;
    const double* const panel_b = panel_a + A::kDoubles;
    double fb[kWide][4];
#pragma unroll
    for (int j = 0; j < kWide; ++j) B::read(fb[j], panel_b, warp_column, 8 * j, lane);
#pragma unroll
    for (int i = 0; i < kHigh; ++i) {
      double fa[2][4];
#pragma unroll
      for (int h = 0; h < 2; ++h) A::read(fa[h], panel_a, warp_row, 16 * i + 8 * h, lane);
      if (i == kHigh - 1) {
        __syncwarp();
        if (lane == 0) pipeline.release(reading.slot);
      }
#pragma unroll
      for (int j = 0; j < kWide; ++j) ptx::mma_f64(sums[i][j], fa, fb[j]);
    }
    copy_next();  // into the slot before this one, which all warps have read by now
    reading.advance(slots);
    if (--left > 0 && block + 1 < end) continue;
    // The segment ends. Its sums leave, unless they are the last ones of C.
    if (g.partial) {
      fp64_detail::store_partial<Shape>(sums, g, segment);
    } else if (g.totals) {
      double* const totals = ring + slots * Shape::kSlot + 2 * fp64_detail::thread_index();  // pairs, kInfo.threads() apart
      int at = 0;
      fp64_detail::each_pair<Shape>([&](int i, int j, int h) {
        double* const total = totals + 2 * kInfo.threads() * at++;
        double &x = sums[i][j][2 * h], &y = sums[i][j][2 * h + 1];
        if (segment > 0) {
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
    ++segment, left = g.segment;
  }
  if (g.partial) return;
  __syncthreads();  // the stages take the slots' place
  fp64_detail::store<Shape>(sums, g, ring);
#endif
}

inline constexpr int kFp64FinishThreads = 128;

/// C from the segments' sums.
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
