// fp64 products on Hopper's tensor cores (sm_90a): out = epilogue(A B), A m x k, B k x n, any strides, any batch. Sizes, tiles
// and splits under 2^31. Reasons: docs/matmul.md.
//
//   Load    cp.async of 16 bytes where base and strides allow, else of 8, by all threads, into a ring of k-blocks of 16. A slot's
//           two mbarriers say that its copies have landed and that all warps have read it.
//   Shared  an operand contiguous along k lies [line][k], else [k][line]; read an element at a time, without bank conflicts.
//   Order   plan.h: segments of k, each from zero, added in order: by the CTA, which keeps a total beside the ring, or by
//           fp64_finish where several CTAs share a tile's k.
//   Store   alpha and bias alone from registers; else through shared memory, each warp its own, whole sectors along a row.
//
// Floors: 2 m n k flop at 256 a cycle and multiprocessor (67 TFLOP/s on an H200); bytes of A, B and C once. Shared memory gives a
// warp of 64 x 32 768 bytes a k, 48 of 128 a cycle; a tile of 128 x 128 takes 16 bytes a cycle from L2.
#pragma once
#include <climits>
#include <type_traits>

#include "device/index_map.h"
#include "device/pipeline.cuh"
#include "device/ptx/cp_async.cuh"
#include "device/ptx/grid.cuh"
#include "device/ptx/mma_f64.cuh"
#include "device/vector.cuh"
#include "matmul/epilogue/apply.cuh"
#include "matmul/fp64_mma/plan.h"

namespace xgemm::matmul {

inline constexpr int kFp64Group = 12;  ///< rows of tiles of a group

struct Fp64Arguments {
  Problem problem;
  bool vectors_a, vectors_b;  ///< 16 bytes a copy, else 8
  bool totals;                ///< a CTA has several segments and writes C
  bool plain;                 ///< nothing but alpha and bias in the epilogue
  int rows;                   ///< of tiles
  /// All tiles, a batch's, those of a whole group of rows, and the rows of the last group.
  ShortDivider per_split, per_batch, per_group, last_rows;
  int blocks, segment;  ///< k-blocks of K, of a segment
  int share;            ///< k-blocks of a CTA
  double* partial;      ///< [segment][batch][m][n] where CTAs share a tile's k
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

/// One operand's k-block in shared memory, how kThreads threads copy it there, and how a warp reads it.
template <int kLines, bool kAlongK, int kThreads>
class Panel {
 public:
  static constexpr int kDoubles = kLines * kFp64TileK;

  /// `from`: the CTA's first line and k. `lines`: that exist from there on.
  __device__ __forceinline__ Panel(const double* from, std::int64_t line_stride, std::int64_t k_stride, int lines, bool vectors) {
    const auto set = [&]<int kWidth>() {
      const int along = Pieces<kWidth>::along(), first = Pieces<kWidth>::first();
      src_ = from + along * (kAlongK ? k_stride : line_stride) + first * (kAlongK ? line_stride : k_stride);
      to_ = kAlongK ? place(first, along) : place(along, first);
      rows_ = kAlongK ? lines - first : along < lines ? first : INT_MAX;
    };
    vectors ? set.template operator()<2>() : set.template operator()<1>();
  }

  /// The next block. k from `depth` on is zero.
  __device__ __forceinline__ void copy(double* panel, std::int64_t line_stride, std::int64_t k_stride, int depth, bool vectors) {
    const auto move = [&]<int kWidth>() {
      using P = Pieces<kWidth>;
      const int rows = kAlongK ? (P::along() < depth ? rows_ : 0) : depth - rows_;
      const std::int64_t step = P::kStep * (kAlongK ? line_stride : k_stride);
      const double* src = src_;
#pragma unroll
      for (int i = 0; i < P::kCount; ++i, src += step) {
        constexpr int kPitch = kAlongK ? kFp64TileK : kLines;
        double* const to = panel + i * (P::kStep * kPitch) + (to_ ^ i * P::kStep % 4 * 4);  // see place()
        if constexpr (kWidth == 2)
          cp_async_or_zeros(to, src, i * P::kStep < rows);
        else
          cp_async<8>(to, src, i * P::kStep < rows ? 8 : 0);
      }
    };
    vectors ? move.template operator()<2>() : move.template operator()<1>();
    src_ += kFp64TileK * k_stride;
  }

  /// What read() of a warp's lines from `line`, a multiple of 16, on is given.
  static __device__ __forceinline__ int reader(int line, int lane) {
    return line * (kAlongK ? kFp64TileK : 1) + place(lane / 4, lane % 4);
  }
  /// A lane's part of the 8 lines from `more` on: line lane / 4 of them, k = 4 i + lane % 4.
  static __device__ __forceinline__ void read(double (&values)[4], const double* panel, int reader, int more) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      values[i] =
          kAlongK ? panel[more * kFp64TileK + (reader ^ 4 * i)] : panel[more / 16 * 16 + 4 * i * kLines + (reader ^ more % 16)];
  }

 private:
  /// A thread's pieces of kWidth elements: of which line (k), how many lines (k) apart, and where in it.
  template <int kWidth>
  struct Pieces {
    static constexpr int kARow = (kAlongK ? kFp64TileK : kLines) / kWidth, kRows = kAlongK ? kLines : kFp64TileK;
    static constexpr int kStep = kThreads / kARow, kCount = kRows / kStep;
    static_assert(kStep * kARow == kThreads && kCount * kStep == kRows && kCount > 0);
    static __device__ __forceinline__ int along() { return static_cast<int>(threadIdx.x % kARow) * kWidth; }
    static __device__ __forceinline__ int first() { return static_cast<int>(threadIdx.x / kARow); }
  };

  /// Of element (line, k): pieces of 16 bytes are exchanged, by an exclusive or, so that half a warp reads all banks. A multiple
  /// of 4 added to the line ([line][k]) or of 16 to the line and 4 to k ([k][line]) changes no exchange.
  static __device__ __forceinline__ int place(int line, int k) {
    return kAlongK ? line * kFp64TileK + (k ^ line % 4 * 4) : k * kLines + (line ^ k % 4 * 4);
  }

  const double* src_;  ///< the thread's first piece of the next block
  int to_, rows_;      ///< its place; lines that exist from it on, or ([k][line]) its k, of lines that do not exist none
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

/// The CTA's tile, and which of the CTAs that share its k. Groups of rows of tiles, column by column in each, so that CTAs that
/// run at a time share the operands that they read in L2.
template <class Shape>
struct Item {
  int split, batch, row, column;  ///< row, column: the tile's first
  __device__ __forceinline__ explicit Item(const Fp64Arguments& g) {
    unsigned block;  // read anew, as thread_index()
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    split = g.per_split.divide(static_cast<int>(block));
    const int in_split = static_cast<int>(block) - split * static_cast<int>(g.per_split.divisor);
    batch = g.per_batch.divide(in_split);
    const int in_batch = in_split - batch * static_cast<int>(g.per_batch.divisor), group = g.per_group.divide(in_batch),
              in_group = in_batch - group * static_cast<int>(g.per_group.divisor);
    const bool whole = (group + 1) * kFp64Group <= g.rows;
    const int height = whole ? kFp64Group : static_cast<int>(g.last_rows.divisor),
              at = whole ? in_group / kFp64Group : g.last_rows.divide(in_group);
    row = (group * kFp64Group + in_group - at * height) * Shape::kInfo.rows, column = at * Shape::kInfo.columns;
  }
};

/// The warp's sums to rows of n from the registers: a segment's to the workspace, or C's where there is nothing but alpha and
/// bias.
template <class Shape, bool kPartial>
__device__ __forceinline__ void store_plain(const typename Shape::Sums& sums, const Fp64Arguments& g, int segment) {
  const Problem& p = g.problem;
  const Item<Shape> item(g);
  const int thread = thread_index(), lane = thread % 32;
  const int row = item.row + Shape::warp_row(thread / 32) + lane / 4,
            column = item.column + Shape::warp_column(thread / 32) + lane % 4 * 2;
  const int rows = static_cast<int>(p.m) - row, columns = static_cast<int>(p.n) - column;
  double* const to = (kPartial ? g.partial : static_cast<double*>(p.out)) +
                     (((kPartial ? segment * p.batches : 0) + item.batch) * p.m + row) * p.n + column;
  const double* const bias =
      kPartial || !p.bias.data ? nullptr : static_cast<const double*>(p.bias.data) + batch_offset(p, p.bias, item.batch);
  const auto all = [&](auto pairs) {
#pragma unroll
    for (int j = 0; j < Shape::kWide; ++j) {
      const int left = columns - 8 * j;
      const double add[2] = {bias && left > 0 ? bias[(column + 8 * j) * p.bias.col_stride] : -0.,
                             bias && left > 1 ? bias[(column + 8 * j + 1) * p.bias.col_stride] : -0.};
#pragma unroll
      for (int i = 0; i < Shape::kHigh; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          double* const at = to + (16 * i + 8 * h) * p.n + 8 * j;
          const bool exists = 16 * i + 8 * h < rows;
          double x[2];
#pragma unroll
          for (int c = 0; c < 2; ++c)
            x[c] = kPartial ? sums[i][j][2 * h + c] : plus(scaled(p.alpha, sums[i][j][2 * h + c]), add[c]);
          if constexpr (pairs) {
            if (exists && left > 0) store_vector(at, Vector<double, 2>{{x[0], x[1]}});
          } else {
            if (exists && left > 0) at[0] = x[0];
            if (exists && left > 1) at[1] = x[1];
          }
        }
    }
  };
  // Is a pair an aligned access? The base is the allocator's.
  p.n % 2 == 0 ? all(std::true_type{}) : all(std::false_type{});
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
        x[i] = scaled(e.alpha, x[i]);
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

  if (threadIdx.x < kMostSlots) {
    ptx::barrier_init(&pipeline.full[threadIdx.x], kInfo.threads());
    ptx::barrier_init(&pipeline.empty[threadIdx.x], kInfo.threads() / 32);
    ptx::fence_barrier_init();
  }
  const Problem& p = g.problem;
  const fp64_detail::Item<Shape> item(g);
  const int first = item.split * g.share, end = min(g.blocks, first + g.share);
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
  const auto copy = [&](int block) {
    if (block >= end) return;
    const int depth = static_cast<int>(p.k) - block * kFp64TileK;
    ptx::Barrier* const landed = pipeline.acquire(filling);
    double* const slot = ring + filling.slot * Shape::kSlot;
    of_a.copy(slot, p.a.row_stride, p.a.col_stride, depth, g.vectors_a);
    of_b.copy(slot + A::kDoubles, p.b.col_stride, p.b.row_stride, depth, g.vectors_b);
    ptx::barrier_arrive_copies(landed);
    filling.advance(slots);
  };

  __syncthreads();
  ptx::grid_wait();
  ptx::grid_release();
  typename Shape::Sums sums = {};
  int segment_end = first + g.segment;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int reader_a = A::reader(Shape::warp_row(warp), lane), reader_b = B::reader(Shape::warp_column(warp), lane);
  // The first blocks are copied in iterations of their own, so that the code of a copy stands here once.
#pragma unroll 1
  for (int block = first - (slots - 1); block < end; copy(block + slots - 1), ++block) {
    if (block < first) continue;
    pipeline.wait(reading);
    const double* const panel_a = ring + reading.slot * Shape::kSlot;
    const double* const panel_b = panel_a + A::kDoubles;
    double fb[kWide][4];
#pragma unroll
    for (int j = 0; j < kWide; ++j) B::read(fb[j], panel_b, reader_b, 8 * j);
    double fa[kHigh][2][4];
    const auto read_a = [&](int i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) A::read(fa[i][h], panel_a, reader_a, 16 * i + 8 * h);
    };
    read_a(0);
#pragma unroll
    for (int i = 0; i < kHigh; ++i) {
      if (i + 1 < kHigh) read_a(i + 1);
      if (i == max(kHigh - 2, 0)) {
        __syncwarp();
        if (lane == 0) pipeline.release(reading.slot);
      }
#pragma unroll
      for (int j = 0; j < kWide; ++j) ptx::mma_f64(sums[i][j], fa[i], fb[j]);
    }
    reading.advance(slots);
    if (block + 1 < min(segment_end, end)) continue;
    // The segment ends. Its sums leave, unless they are the last ones of C.
    if (g.partial) {
      fp64_detail::store_plain<Shape, true>(sums, g, block / g.segment);
    } else if (g.totals) {
      double* const totals = ring + slots * Shape::kSlot + 2 * fp64_detail::thread_index();  // pairs, kInfo.threads() apart
      int at = 0;
      fp64_detail::each_pair<Shape>([&](int i, int j, int h) {
        double* const total = totals + 2 * kInfo.threads() * at++;
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
