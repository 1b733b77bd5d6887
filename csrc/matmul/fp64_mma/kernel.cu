// fp64 products on tensor cores: out = epilogue(A B), A m x k, B k x n, any strides, any batch. Sizes, tiles and splits under
// 2^31. sm_80 and later, where mma.sync in fp64 is faster than CUDA cores (plan/machine.h). Design: docs/matmul.md.
//
//   Load    All warps copy k-blocks of 16 into a ring of slots: cp.async of 16 bytes if base and strides allow, else of 8.
//   Shared  [line][k] if the operand is contiguous along k, else [k][line]; read one element at a time, without bank conflicts.
//   Order   plan.h: segments of k, each from zero, added in order: by the CTA in registers, or by fp64_finish.
//   Store   alpha alone from registers; other epilogues through shared memory, where a thread finds its own sums by index.
//
// Floors: 2 m n k flop at 256 per cycle and SM of Hopper (67 TFLOP/s on an H200), 128 on an A100; bytes of A, B and C once. Per
// k, shared memory supplies 768 bytes to a warp of 32 x 64; CTAs of 64 x 128 take 24 bytes per cycle and SM from L2.
#include <algorithm>

#include "device/integer.h"
#include "device/launch.h"
#include "device/mma_f64.cuh"
#include "device/ptx/cp_async.cuh"
#include "device/ptx/grid.cuh"
#include "device/tile_order.cuh"
#include "device/vector.cuh"
#include "matmul/dispatch.h"
#include "matmul/epilogue/apply.cuh"
#include "matmul/fp64_mma/plan.h"
#include "matmul/launch.h"

namespace xgemm::matmul {

struct Fp64Arguments {
  Problem problem;
  bool vectors_a, vectors_b;  ///< 16 bytes per copy, else 8
  bool plain;                 ///< nothing but alpha in the epilogue
  unsigned rows, columns;     ///< tiles of a batch
  int blocks, segment;        ///< k-blocks of K, of a segment
  int split_blocks;           ///< k-blocks of a split, which are gridDim.y
  double* partial;            ///< [segment][batch][m][n] if CTAs share a tile's k
};

namespace fp64_detail {

/// One operand's k-block in shared memory, what this thread copies of it, and how a warp reads it.
template <int kLines, bool kAlongK, int kThreads>
class Panel {
  static constexpr int kRow = kAlongK ? kFp64TileK : kLines, kRows = kAlongK ? kLines : kFp64TileK;

 public:
  static constexpr int kDoubles = kRow * kRows;

  /// `from`: the CTA's first line and k, of `lines` and `depth` that are in bounds.
  __device__ __forceinline__ Panel(const double* from, std::int64_t line_stride, std::int64_t k_stride, int lines, int depth,
                                   bool vectors) {
    const int width = vectors ? 2 : 1, along = static_cast<int>(threadIdx.x) % (kRow / width) * width,
              first = static_cast<int>(threadIdx.x) / (kRow / width);
    src_ = from + along * (kAlongK ? k_stride : line_stride) + first * (kAlongK ? line_stride : k_stride);
    to_ = kAlongK ? place(first, along) : place(along, first);
    rows_ = (kAlongK ? lines : depth) - first, row_ = (kAlongK ? depth : lines) - along;
  }

  /// Copies the next block. What is out of bounds is zero.
  __device__ __forceinline__ void copy(double* panel, std::int64_t line_stride, std::int64_t k_stride, bool vectors) {
    const auto move = [&]<int kWidth>() {
      constexpr int kStep = kThreads * kWidth / kRow, kCount = kRows / kStep;  // the thread's rows: how far apart, how many
      static_assert(kStep * kRow == kThreads * kWidth && kCount * kStep == kRows && kCount > 0);
      const int rows = row_ > 0 ? rows_ : 0;
      const double* src = src_;
#pragma unroll
      for (int i = 0; i < kCount; ++i, src += kStep * (kAlongK ? line_stride : k_stride)) {
        double* const to = panel + i * (kStep * kRow) + (to_ ^ i * kStep % 4 * 4);  // see place()
        if constexpr (kWidth == 2)
          cp_async_or_zeros(to, src, i * kStep < rows);
        else
          cp_async<8>(to, src, i * kStep < rows ? 8 : 0);
      }
    };
    vectors ? move.template operator()<2>() : move.template operator()<1>();
    src_ += kFp64TileK * k_stride;
    (kAlongK ? row_ : rows_) -= kFp64TileK;
  }

  /// The argument of read() for a warp's lines from `line`, a multiple of 16, on.
  static __device__ __forceinline__ int reader(int line, int lane) {
    return line * (kAlongK ? kFp64TileK : 1) + place(lane / 4, lane % 4);
  }
  /// Reads a lane's part of the 8 lines from `more` on: line lane / 4 of them, k = 4 i + lane % 4.
  static __device__ __forceinline__ void read(double (&values)[4], const double* panel, int reader, int more) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      values[i] =
          kAlongK ? panel[more * kFp64TileK + (reader ^ 4 * i)] : panel[more / 16 * 16 + 4 * i * kLines + (reader ^ more % 16)];
  }

 private:
  /// Offset of element (line, k). Pieces of 16 bytes are swizzled by an exclusive or, so that half a warp reads all banks.
  /// Adding a multiple of 4 to the line ([line][k]), or of 16 to the line and 4 to k ([k][line]), does not change the swizzle.
  static __device__ __forceinline__ int place(int line, int k) {
    return kAlongK ? line * kFp64TileK + (k ^ line % 4 * 4) : k * kLines + (line ^ k % 4 * 4);
  }

  const double* src_;  ///< the thread's first piece of the next block
  int to_;             ///< its place
  int rows_, row_;     ///< rows in bounds, elements of a row in bounds, from it on
};

template <Fp64Tile kTile, bool kAlongKA, bool kAlongKB>
struct Shape {
  static constexpr TileInfo kInfo = info(kTile);
  static constexpr Fp64Geometry kGeometry = geometry(kTile);
  static constexpr int kThreads = kGeometry.threads(), kSlots = kGeometry.slots;
  static constexpr int kRows = kInfo.m / kGeometry.warps_rows, kColumns = kInfo.n / kGeometry.warps_columns;  // of a warp
  static constexpr int kHigh = kRows / 16, kWide = kColumns / 8;                                              // mmas of a warp
  static_assert(kWide % 2 == 0);  // B's fragments alternate between two sets of registers
  using A = Panel<kInfo.m, kAlongKA, kThreads>;
  using B = Panel<kInfo.n, kAlongKB, kThreads>;
  static constexpr int kSlot = A::kDoubles + B::kDoubles, kRing = kSlots * kSlot, kBytes = 8 * kRing;
  static_assert(kInfo.per_sm * (kBytes + 1024) <= 164 * 1024 && kRing >= kInfo.m * kInfo.n);
  /// Element 2 h + c of [i][j] is row 16 i + lane / 4 + 8 h, column 8 j + 2 (lane % 4) + c.
  using Sums = double[kHigh][kWide][4];
};

/// A CTA's tile, and where in it the thread's first sum lies.
template <class Shape>
struct Place {
  const Fp64Arguments& g;
  TilePlace tile = tile_at<12>(blockIdx.x, g.rows, g.columns);
  std::int64_t batch = tile.batch;
  int row = static_cast<int>(tile.row) * Shape::kInfo.m, column = static_cast<int>(tile.column) * Shape::kInfo.n;
  int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int thread_row = warp / Shape::kGeometry.warps_columns * Shape::kRows + lane / 4,
      thread_column = warp % Shape::kGeometry.warps_columns * Shape::kColumns + lane % 4 * 2;
};

/// Calls f(pair of sums, row, column) for the thread's pairs, relative to its first.
template <class Shape, class F>
__device__ __forceinline__ void each_pair(typename Shape::Sums& sums, const F& f) {
#pragma unroll
  for (int i = 0; i < Shape::kHigh; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int j = 0; j < Shape::kWide; ++j) f(reinterpret_cast<double(&)[2]>(sums[i][j][2 * h]), 16 * i + 8 * h, 8 * j);
}

/// Stores a pair of a row of length n; of its columns `left` are in bounds.
__device__ __forceinline__ void store_pair(double* to, const double (&x)[2], int left, std::int64_t n) {
  if (n % 2 == 0) {  // the base is the allocator's, so every pair is aligned and whole
    if (left > 0) store_vector(to, Vector<double, 2>{{x[0], x[1]}});
  } else {
    if (left > 0) to[0] = x[0];
    if (left > 1) to[1] = x[1];
  }
}

/// Stores sums times `alpha` to `to`, C or a segment's in the workspace.
template <class Shape>
__device__ __forceinline__ void store_plain(typename Shape::Sums& sums, const Problem& p, const Place<Shape>& place, double* to,
                                            double alpha) {
  const int row = place.row + place.thread_row, column = place.column + place.thread_column;
  const int rows = static_cast<int>(p.m) - row, columns = static_cast<int>(p.n) - column;
  to += (place.batch * p.m + row) * p.n + column;
  each_pair<Shape>(sums, [&](const double(&sum)[2], int r, int c) {
    if (r < rows) store_pair(to + r * p.n + c, {scaled(alpha, sum[0]), scaled(alpha, sum[1])}, columns - c, p.n);
  });
}

/// Stores C with any epilogue. Registers have no run-time index, shared memory has: `own`, pairs 2 kThreads apart.
template <class Shape>
__device__ __forceinline__ void store(typename Shape::Sums& sums, const Problem& p, const Place<Shape>& place, double* own) {
  const int row0 = place.row + place.thread_row, column0 = place.column + place.thread_column;
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n);
  double* at = own;
  each_pair<Shape>(sums, [&](const double(&sum)[2], int, int) {
    store_vector(at, Vector<double, 2>{{sum[0], sum[1]}});
    at += 2 * Shape::kThreads;
  });
  const auto e = make_epilogue<double, double>(p, place.batch);
  double* const out = static_cast<double*>(p.out) + place.batch * p.m * p.n;
#pragma unroll 1
  for (int i = 0; i < Shape::kRows / 8 * Shape::kWide; ++i) {
    const std::int64_t row = row0 + 8 * (i / Shape::kWide);
    const int column = column0 + 8 * (i % Shape::kWide);
    if (row >= m || column >= n) continue;
    const std::int64_t columns[2] = {column, min(column + 1, n - 1)};
    const auto sum = load_vector<2>(own + 2 * Shape::kThreads * i);
    double x[2] = {scaled(e.alpha, sum[0]), scaled(e.alpha, sum[1])};
    e.finish(x, row, [&](int c) { return columns[c]; });
    store_pair(out + row * p.n + column, x, n - column, p.n);
  }
}

}  // namespace fp64_detail

template <Fp64Tile kTile, bool kAlongKA, bool kAlongKB>
__global__ void __launch_bounds__(geometry(kTile).threads(), info(kTile).per_sm)
    fp64_mma(const __grid_constant__ Fp64Arguments g) {
  using namespace fp64_detail;
  using Shape = Shape<kTile, kAlongKA, kAlongKB>;
  using A = typename Shape::A;
  using B = typename Shape::B;
  constexpr int kHigh = Shape::kHigh, kWide = Shape::kWide, kSlots = Shape::kSlots;
  extern __shared__ __align__(128) double ring[];
  const Problem& p = g.problem;
  const Place<Shape> place{g};
  const int first = static_cast<int>(blockIdx.y) * g.split_blocks, end = min(g.blocks, first + g.split_blocks);
  const std::int64_t k0 = std::int64_t{first} * kFp64TileK;
  const int depth = static_cast<int>(p.k - k0);
  const auto start = [&](const Operand& x, std::int64_t line, std::int64_t line_stride, std::int64_t k_stride) {
    return static_cast<const double*>(x.data) + (place.batch ? batch_offset(p, x, place.batch) : 0) + line * line_stride +
           k0 * k_stride;
  };
  A of_a(start(p.a, place.row, p.a.row_stride, p.a.col_stride), p.a.row_stride, p.a.col_stride, static_cast<int>(p.m) - place.row,
         depth, g.vectors_a);
  B of_b(start(p.b, place.column, p.b.col_stride, p.b.row_stride), p.b.col_stride, p.b.row_stride,
         static_cast<int>(p.n) - place.column, depth, g.vectors_b);
  double* filled = ring;
  const auto copy = [&](int block) {
    if (block < end) {
      of_a.copy(filled, p.a.row_stride, p.a.col_stride, g.vectors_a);
      of_b.copy(filled + A::kDoubles, p.b.col_stride, p.b.row_stride, g.vectors_b);
    }
    cp_async_commit();  // an empty group too: the wait counts groups
    filled = filled + Shape::kSlot == ring + Shape::kRing ? ring : filled + Shape::kSlot;
  };
  ptx::grid_wait();
  ptx::grid_release();
#pragma unroll 1
  for (int i = 0; i < kSlots; ++i) copy(first + i);

  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int reader_a = A::reader(place.thread_row - lane / 4, lane),
            reader_b = B::reader(place.thread_column - lane % 4 * 2, lane);
  typename Shape::Sums sums = {}, totals = {};
  // Registers have A's fragments of the warp's whole k-block; of B's, the one in use and the next. A fragment is read again,
  // from the next k-block, as soon as its last product has begun: so products never wait for reads.
  double fa[kHigh][2][4], fb[2][4];
  const double* panel = ring;
  const auto read_a = [&](int i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) A::read(fa[i][h], panel, reader_a, 16 * i + 8 * h);
  };
  const auto read_b = [&](int j) { B::read(fb[j % 2], panel + A::kDoubles, reader_b, 8 * j); };
  cp_async_wait<kSlots - 1>();
  __syncthreads();
  read_b(0);
#pragma unroll
  for (int i = 0; i < kHigh; ++i) read_a(i);
  int segment_end = min(end, first + g.segment);
#pragma unroll 1
  for (int block = first;; ++block) {
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
      const bool last = j + 1 == kWide;
      if (!last) read_b(j + 1);
#pragma unroll
      for (int i = 0; i < kHigh; ++i) {
        mma_f64(sums[i][j], fa[i], fb[j % 2]);
        if (last && i == 0) {
          cp_async_wait<kSlots - 2>();
          __syncthreads();  // all copies of the next block have arrived, and all warps have read this one
          copy(block + kSlots);
          panel = filled;
          read_b(0);
        }
        if (last) read_a(i);
      }
    }
    if (block + 1 < segment_end) continue;
    // The segment ends.
    if (g.partial) {
      const std::int64_t plane = std::int64_t{block / g.segment} * p.batches * p.m * p.n;
      store_plain<Shape>(sums, p, place, g.partial + plane, 1);
    }
    if (segment_end == end) break;
    segment_end = min(end, segment_end + g.segment);
#pragma unroll
    for (int i = 0; i < kHigh; ++i)
#pragma unroll
      for (int j = 0; j < kWide; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if constexpr (has_totals(kTile)) totals[i][j][e] += sums[i][j][e];
          sums[i][j][e] = 0;
        }
  }
  if (g.partial) return;
  if constexpr (has_totals(kTile)) {
#pragma unroll
    for (int i = 0; i < kHigh; ++i)
#pragma unroll
      for (int j = 0; j < kWide; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[i][j][e] = totals[i][j][e] + sums[i][j][e];
  }
  if (g.plain) return store_plain<Shape>(sums, p, place, static_cast<double*>(p.out), p.alpha);
  __syncthreads();  // the sums overwrite the slots
  store<Shape>(sums, p, place, ring + 2 * threadIdx.x);
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

void launch_fp64(const Problem& problem, const Fp64Plan& plan, void* workspace, cudaStream_t stream) {
  const Problem p = fp64_problem(problem);
  const TileInfo& tile = info(plan.tile);
  const std::int64_t rows = ceil_div(p.m, tile.m), columns = ceil_div(p.n, tile.n);
  const Fp64Arguments g{.problem = p,
                        .vectors_a = has_vectors(p, lines_of_a(p), 2),
                        .vectors_b = has_vectors(p, lines_of_b(p), 2),
                        .plain = has_plain_epilogue(p) && !p.bias.data,
                        .rows = static_cast<unsigned>(rows),
                        .columns = static_cast<unsigned>(columns),
                        .blocks = static_cast<int>(plan.blocks),
                        .segment = static_cast<int>(plan.segment),
                        .split_blocks = static_cast<int>(plan.split_blocks),
                        .partial = plan.splits > 1 ? static_cast<double*>(workspace) : nullptr};
  // If neither stride is 1, elements are loaded one at a time in either layout.
  const bool a = p.a.row_stride != 1 || p.a.col_stride == 1, b = p.b.col_stride != 1 || p.b.row_stride == 1;
  dispatch_tile<kFp64Tiles.size()>(plan.tile, [&]<Fp64Tile kTile>() {
    dispatch_flags(a, b, [&]<bool kAlongKA, bool kAlongKB>() {
      using Shape = fp64_detail::Shape<kTile, kAlongKA, kAlongKB>;
      enqueue_with_shared<fp64_mma<kTile, kAlongKA, kAlongKB>, Shape::kBytes>(
          {.blocks = {static_cast<unsigned>(rows * columns * p.batches), static_cast<unsigned>(plan.splits)},
           .threads = Shape::kThreads,
           .early = true},
          stream, g);
    });
  });
  if (plan.splits == 1) return;
  const std::int64_t ctas = ceil_div(p.batches * p.m * p.n, kFp64FinishThreads);
  enqueue(fp64_finish, early_grid(std::min<std::int64_t>(ctas, 65536), kFp64FinishThreads), stream, g);
}

}  // namespace xgemm::matmul
