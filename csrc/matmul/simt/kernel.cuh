// Matrix product on CUDA cores: the warp-tiled, double-buffered kernel for every dtype, stride and size.
//
//   out = epilogue(A B), A m x k, B k x n, any strides (elements), any batch; T in {float, double, half, bf16}.
//
//   Block   bm x bn of one batch's product, k in steps of bk through two shared-memory buffers: the next step's elements
//           come to registers while the current step is multiplied and are stored in the middle of it; one barrier a step.
//   Thread  tm x tn sums (fp32, or fp64 for double) in 4 x 4 quads spread over the warp's part, so that every shared read
//           is a 16-byte access without bank conflicts.
//   Loads   quads of 4 along whichever direction is contiguous, one vector access where base and strides allow, else one
//           by one; both tiles lie k-major in shared memory, so a quad along k is transposed on its way. Outside the
//           matrices zeros are loaded, so nothing there becomes NaN; nothing outside is read or written.
//   Order   chunks of k as plan.h says. With one block a tile, the sum over finished chunks waits in shared memory, in a
//           slot of each thread's own; with several, each writes its chunks' sums to the workspace and simt_finish adds
//           them in order.
//   Archs   sm_80 and later. Limits: tiles of all batches and splits under 2^31.
//
// Floor: 2 m n k flop at 128 FMA a cycle and multiprocessor (67 TFLOP/s on an H200); bytes of A, B and out once.
// Shared memory: per k, tm + tn floats feed tm * tn multiply-adds of a thread.
#pragma once
#include "device/vector.cuh"
#include "device/warp.cuh"
#include "matmul/epilogue/apply.cuh"
#include "matmul/fp16_split/line_scale.cuh"
#include "matmul/gemv/compensated.cuh"
#include "matmul/simt/launch.h"

namespace xgemm::matmul {

/// Which way quads run: along k (transposed on their way to shared memory) or along the lines. Known at compile time in the hot
/// instantiations (6 % faster than asking), asked of Access in the others.
enum class Along { k, lines, runtime };

/// How the quads of one operand are loaded; decided on the host for the whole problem.
struct Access {
  std::int64_t line_stride;  ///< between rows of A, columns of B
  std::int64_t k_stride;
  bool along_k;  ///< quads run along k (else along the lines)
};

struct SimtArguments {
  Problem problem;
  Access a, b;
  std::int64_t chunk, chunks, splits;
  void* partial;     ///< [chunk][batch][m][n] sums, when splits > 1
  FailedPairs only;  ///< fp32: the elements to write
  bool exact;        ///< gemv: each sum has what it rounded off beside it, `chunks` further on in `partial` (plan.h)
};

namespace simt {

template <class Acc>
__device__ __forceinline__ Quad<Acc> load_quad(const Acc* p) {
  Quad<Acc> q;
  constexpr int kWidth = kVectorWidth<Acc>;
#pragma unroll
  for (int i = 0; i < 4; i += kWidth) {
    const auto part = load_vector<kWidth>(p + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) q.v[i + j] = part[j];
  }
  return q;
}

template <class Acc>
__device__ __forceinline__ void store_quad(Acc* p, const Quad<Acc>& q) {
  constexpr int kWidth = kVectorWidth<Acc>;
#pragma unroll
  for (int i = 0; i < 4; i += kWidth) {
    Vector<Acc, kWidth> part;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) part[j] = q.v[i + j];
    store_vector(p + i, part);
  }
}

/// Writes up to `count` elements of a quad of a row of length n; one access where the row allows it.
template <class T>
__device__ __forceinline__ void store_global(T* p, const Quad<T>& q, int count, std::int64_t n) {
  if (n % 4 == 0) {  // the base is the allocator's, so every quad of every row is aligned and whole
    if constexpr (sizeof(T) == 2)
      store_vector(p, Vector<T, 4>{{q.v[0], q.v[1], q.v[2], q.v[3]}});
    else
      store_quad(p, q);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (j < count) p[j] = q.v[j];
  }
}

/// Moves one operand's tile of kLines x kDepth from global to shared memory ([k][line], lines padded), kThreads threads, in
/// quads. kVector: every quad is one aligned access, wholly inside or outside the matrix.
template <class T, class Acc, int kLines, int kDepth, int kThreads, bool kVector, Along kAlong>
class Loader {
 public:
  static constexpr int kQuads = kLines * kDepth / 4 / kThreads;
  static_assert(kQuads * kThreads * 4 == kLines * kDepth, "every thread moves the same number of quads");
  static constexpr int kPitch = kLines + 4;  // quads along k are stored without (16-deep tiles: with 2-way) bank conflicts

  /// `base`: element (first line of the tile, k = 0). `lines`: lines of the tile that exist.
  __device__ __forceinline__ Loader(const T* base, const Access& access, int lines)
      : base_(base), access_(access), lines_(lines) {}

  /// The next fetch() reads at k.
  __device__ __forceinline__ void seek(std::int64_t k) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const Position at = position(i);
      next_[i] = base_ + at.line * access_.line_stride + (k + at.k) * access_.k_stride;
    }
  }

  /// Reads the next tile to registers; elements `depth` or deeper are zero.
  __device__ __forceinline__ void fetch(int depth) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const Position at = position(i);
      if constexpr (kVector) {
#pragma unroll
        for (int j = 0; j < 4; ++j) registers_[i].v[j] = T(0);
        if (at.line < lines_ && at.k < depth) {
          const auto v = load_vector < sizeof(T) == 8 ? 2 : 4 > (next_[i]);
          if constexpr (sizeof(T) == 8) {
            const auto w = load_vector<2>(next_[i] + 2);
            registers_[i] = {v[0], v[1], w[0], w[1]};
          } else {
#pragma unroll
            for (int j = 0; j < 4; ++j) registers_[i].v[j] = v[j];
          }
        }
      } else {
        const int inside = along_k() ? (at.line < lines_ ? depth - at.k : 0) : (at.k < depth ? lines_ - at.line : 0);
        const std::int64_t step = along_k() ? access_.k_stride : access_.line_stride;
#pragma unroll
        for (int j = 0; j < 4; ++j) registers_[i].v[j] = j < inside ? next_[i][j * step] : T(0);
      }
      next_[i] += kDepth * access_.k_stride;
    }
  }

  /// Stores the fetched tile to `tile`.
  __device__ __forceinline__ void store(Acc* tile) const {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const Position at = position(i);
      Acc* p = tile + at.k * kPitch + at.line;
      if (along_k()) {
#pragma unroll
        for (int j = 0; j < 4; ++j) p[j * kPitch] = convert<Acc>(registers_[i].v[j]);
      } else {
        Quad<Acc> wide;
#pragma unroll
        for (int j = 0; j < 4; ++j) wide.v[j] = convert<Acc>(registers_[i].v[j]);
        store_quad(p, wide);
      }
    }
  }

 private:
  struct Position {
    int line, k;
  };
  __device__ __forceinline__ bool along_k() const { return kAlong == Along::runtime ? access_.along_k : kAlong == Along::k; }
  /// Neighbouring threads take neighbouring quads along the contiguous direction.
  __device__ __forceinline__ Position position(int i) const {
    const int q = static_cast<int>(threadIdx.x) + i * kThreads;
    return along_k() ? Position{q / (kDepth / 4), q % (kDepth / 4) * 4} : Position{q % (kLines / 4) * 4, q / (kLines / 4)};
  }

  const T* base_;
  const Access& access_;
  int lines_;
  const T* next_[kQuads];
  Quad<T> registers_[kQuads];
};

/// The tile a block works on: rows of tiles are walked in groups, so that blocks in flight share operands in L2.
struct TileIndex {
  std::int64_t row, col;
};
__device__ __forceinline__ TileIndex tile_index(std::int64_t index, std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kGroup = 8;
  const std::int64_t group = index / (kGroup * cols), first = group * kGroup;
  const std::int64_t height = rows - first < kGroup ? rows - first : kGroup;
  const std::int64_t within = index - group * kGroup * cols;
  return {first + within % height, within / height};
}

/// Reads the qualities of a tile's lines; true if every pair of them is well, and the block has nothing to do.
template <int kBM, int kBN>
__device__ __forceinline__ bool all_well(const FailedPairs& only, const Problem& p, std::int64_t batch, std::int64_t row0,
                                         std::int64_t col0, LineQuality (&quality)[kBM + kBN]) {
  __shared__ int worst_density[2], worst_filled[2];
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  if (thread < 2) worst_density[thread] = worst_filled[thread] = 1 << 14;
  __syncthreads();
  for (int first = 0; first < kBM + kBN; first += threads) {
    const int i = first + thread;
    const bool row = i < kBM;
    const std::int64_t line = row ? row0 + i : col0 + i - kBM;
    const LineStats* const lines = row ? only.a + batch * only.batch_step_a * p.m : only.b + batch * only.batch_step_b * p.n;
    LineQuality mine{1 << 14, 1 << 14};
    if (i < kBM + kBN && line < (row ? p.m : p.n)) {
      mine = line_quality(lines[line], p.k);
      if (!row && only.up) {  // the worse of both weights' columns
        const LineQuality up = line_quality(only.up[line], p.k);
        mine = {min(mine.density, up.density), min(mine.filled, up.filled)};
      }
    }
    if (i < kBM + kBN) quality[i] = mine;
    // The lanes of the same side: a warp may hold both.
    const unsigned same = __ballot_sync(kFullWarp, row) ^ (row ? 0u : kFullWarp);
    const int density = __reduce_min_sync(same, mine.density), filled = __reduce_min_sync(same, mine.filled);
    if (thread % kWarpSize == __ffs(static_cast<int>(same)) - 1) {
      atomicMin(&worst_density[!row], density);
      atomicMin(&worst_filled[!row], filled);
    }
  }
  __syncthreads();
  if (pairs_well({worst_density[0], worst_filled[0]}, {worst_density[1], worst_filled[1]})) return true;
  bool bad = false;
  for (int i = thread; i < kBM * kBN; i += threads) bad |= !pairs_well(quality[i / kBN], quality[kBM + i % kBN]);
  return !__syncthreads_or(bad);
}

/// What registers are budgeted for: element-wise loads and fp64 sums take about twice as many.
template <class T, SimtTile kSimtTile, bool kVector>
constexpr int blocks_per_sm() {
  constexpr int kBlocks = info(kSimtTile).tile.blocks_per_sm;
  return kVector && sizeof(T) == 4 ? kBlocks : (kBlocks + 1) / 2;
}

}  // namespace simt

template <class T, SimtTile kSimtTile, bool kVector, Along kAlongA, Along kAlongB>
__global__ void __launch_bounds__(info(kSimtTile).tile.threads(), simt::blocks_per_sm<T, kSimtTile, kVector>())
    simt_gemm(const __grid_constant__ SimtArguments args) {
  using Acc = Accumulator<T>;
  constexpr Tile kTile = info(kSimtTile).tile;
  constexpr int kThreads = kTile.threads(), kBM = kTile.bm, kBN = kTile.bn, kBK = kTile.bk;
  constexpr int kQuadsM = kTile.tm() / 4, kQuadsN = kTile.tn() / 4;
  using LoaderA = simt::Loader<T, Acc, kBM, kBK, kThreads, kVector, kAlongA>;
  using LoaderB = simt::Loader<T, Acc, kBN, kBK, kThreads, kVector, kAlongB>;
  static_assert(kTile.lanes_m * kTile.lanes_n == 32 && kTile.tm() % 4 == 0 && kTile.tn() % 4 == 0);

  extern __shared__ __align__(16) unsigned char shared[];
  Acc* const tile_a = reinterpret_cast<Acc*>(shared);
  Acc* const tile_b = tile_a + 2 * kBK * LoaderA::kPitch;
  Acc* const totals = tile_b + 2 * kBK * LoaderB::kPitch;

  const Problem& p = args.problem;
  const std::int64_t rows = (p.m + kBM - 1) / kBM, cols = (p.n + kBN - 1) / kBN;
  const std::int64_t tiles = rows * cols;
  const std::int64_t block = blockIdx.x, batch = block / tiles % p.batches, split = block / tiles / p.batches;
  const auto [tile_row, tile_col] = simt::tile_index(block % tiles, rows, cols);
  const std::int64_t row0 = tile_row * kBM, col0 = tile_col * kBN;
  const int rows_here = static_cast<int>(p.m - row0 < kBM ? p.m - row0 : kBM);
  const int cols_here = static_cast<int>(p.n - col0 < kBN ? p.n - col0 : kBN);

  constexpr bool kMayPick = std::is_same_v<T, float>;
  __shared__ LineQuality quality[kMayPick ? kBM + kBN : 1];
  if constexpr (kMayPick)
    if (args.only.a && simt::all_well<kBM, kBN>(args.only, p, batch, row0, col0, quality)) return;

  const T* a = static_cast<const T*>(p.a.data) + batch_offset(p, p.a, batch) + row0 * args.a.line_stride;
  const T* b = static_cast<const T*>(p.b.data) + batch_offset(p, p.b, batch) + col0 * args.b.line_stride;
  LoaderA load_a(a, args.a, rows_here);
  LoaderB load_b(b, args.b, cols_here);

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kWarpM = kBM / kTile.warps_m, kWarpN = kBN / kTile.warps_n;
  // Quad (i, j) of a thread: rows row + i * 4 * lanes_m .. + 3, columns col + j * 4 * lanes_n .. + 3 of the tile.
  const int row = warp / kTile.warps_n * kWarpM + lane / kTile.lanes_n * 4;
  const int col = warp % kTile.warps_n * kWarpN + lane % kTile.lanes_n * 4;

  Acc sum[kQuadsM * 4][kQuadsN * 4];
  // A thread's slots: quad q of all threads lies together, so that a warp's access is one run of shared memory.
  Acc* const slots = totals + static_cast<int>(threadIdx.x) * 4;
  constexpr int kSlot = kThreads * 4, kQuadsAll = kQuadsM * 4 * kQuadsN;

  const auto multiply = [&](int buffer, bool more) {
    const Acc* ta = tile_a + buffer * kBK * LoaderA::kPitch + row;
    const Acc* tb = tile_b + buffer * kBK * LoaderB::kPitch + col;
#pragma unroll
    for (int k = 0; k < kBK; ++k) {
      Quad<Acc> fa[kQuadsM], fb[kQuadsN];
#pragma unroll
      for (int i = 0; i < kQuadsM; ++i) fa[i] = simt::load_quad(ta + k * LoaderA::kPitch + i * 4 * kTile.lanes_m);
#pragma unroll
      for (int j = 0; j < kQuadsN; ++j) fb[j] = simt::load_quad(tb + k * LoaderB::kPitch + j * 4 * kTile.lanes_n);
      if (k == kBK / 2 - 1 && more) {  // the fetched step has arrived by now, and its stores hide behind the rest
        load_a.store(tile_a + (buffer ^ 1) * kBK * LoaderA::kPitch);
        load_b.store(tile_b + (buffer ^ 1) * kBK * LoaderB::kPitch);
      }
#pragma unroll
      for (int r = 0; r < kQuadsM * 4; ++r)
#pragma unroll
        for (int cc = 0; cc < kQuadsN * 4; ++cc) {
          const int c = r % 2 ? kQuadsN * 4 - 1 - cc : cc;  // to and fro: the operand at the turn is reused (+5 % measured)
          sum[r][c] = fma(fa[r / 4].v[r % 4], fb[c / 4].v[c % 4], sum[r][c]);
        }
    }
  };

  const std::int64_t per_block = (args.chunks + args.splits - 1) / args.splits;
  const std::int64_t first = split * per_block, last = first + per_block < args.chunks ? first + per_block : args.chunks;
  for (std::int64_t chunk = first; chunk < last; ++chunk) {
    const std::int64_t k_begin = chunk * args.chunk, k_end = k_begin + args.chunk < p.k ? k_begin + args.chunk : p.k;
#pragma unroll
    for (int r = 0; r < kQuadsM * 4; ++r)
#pragma unroll
      for (int c = 0; c < kQuadsN * 4; ++c) sum[r][c] = 0;
    load_a.seek(k_begin);
    load_b.seek(k_begin);
    int left = static_cast<int>(k_end - k_begin);
    load_a.fetch(left);
    load_b.fetch(left);
    __syncthreads();  // the previous chunk's last buffer has been read
    load_a.store(tile_a);
    load_b.store(tile_b);
    __syncthreads();
    int buffer = 0;
    for (left -= kBK; left > 0; left -= kBK) {
      load_a.fetch(left);
      load_b.fetch(left);
      multiply(buffer, true);
      buffer ^= 1;
      __syncthreads();
    }
    multiply(buffer, false);

    // Finished sums leave the registers at once: what follows needs many addresses and is not hot.
    const bool add = args.splits == 1 && chunk > 0;
#pragma unroll
    for (int q = 0; q < kQuadsAll; ++q) {
      Quad<Acc> here;
#pragma unroll
      for (int j = 0; j < 4; ++j) here.v[j] = sum[q / kQuadsN][q % kQuadsN * 4 + j];
      if (add) {
        const Quad<Acc> before = simt::load_quad(slots + q * kSlot);
#pragma unroll
        for (int j = 0; j < 4; ++j) here.v[j] = before.v[j] + here.v[j];
      }
      simt::store_quad(slots + q * kSlot, here);
    }
    if (args.splits == 1 && chunk + 1 < last) continue;

    const Epilogue<T, Acc> epilogue = make_epilogue<T, Acc>(p, batch);
    T* const out = static_cast<T*>(p.out) + batch * p.m * p.n;
    Acc* const partial = static_cast<Acc*>(args.partial) + (chunk * p.batches + batch) * p.m * p.n;
#pragma unroll 1
    for (int q = 0; q < kQuadsAll; ++q) {
      const int r = row + q / kQuadsN / 4 * 4 * kTile.lanes_m + q / kQuadsN % 4, c = col + q % kQuadsN * 4 * kTile.lanes_n;
      if (r >= rows_here || c >= cols_here) continue;
      const Quad<Acc> total = simt::load_quad(slots + q * kSlot);
      const std::int64_t at = (row0 + r) * p.n + col0 + c;
      if (args.splits > 1) {
        simt::store_global(partial + at, total, cols_here - c, p.n);
        continue;
      }
      if constexpr (kMayPick) {
        if (args.only.a) {
          for (int j = 0; j < 4; ++j)
            if (j < cols_here - c && !pairs_well(quality[r], quality[kBM + c + j]))
              out[at + j] = epilogue(total.v[j], row0 + r, col0 + c + j);
          continue;
        }
      }
      if constexpr (!std::is_same_v<T, Acc>) {
        if (p.wide_out) {
          simt::store_global(static_cast<Acc*>(p.out) + batch * p.m * p.n + at,
                             epilogue.template quad<Acc>(total, row0 + r, col0 + c, cols_here - c), cols_here - c, p.n);
          continue;
        }
      }
      simt::store_global(out + at, epilogue.template quad<T>(total, row0 + r, col0 + c, cols_here - c), cols_here - c, p.n);
    }
  }
}

/// Adds the chunks' sums in order and applies the epilogue. One thread an element; floor: the bytes of the partial sums and out.
template <class T>
__global__ void __launch_bounds__(256) simt_finish(const __grid_constant__ SimtArguments args) {
  using Acc = Accumulator<T>;
  const Problem& p = args.problem;
  const std::int64_t matrix = p.m * p.n, count = p.batches * matrix;
  const Acc* partial = static_cast<const Acc*>(args.partial);
  for (std::int64_t i = blockIdx.x * std::int64_t{256} + threadIdx.x; i < count; i += gridDim.x * std::int64_t{256}) {
    const std::int64_t batch = i / matrix, within = i % matrix;
    Acc sum = partial[i];
    if constexpr (std::is_same_v<T, float>) {
      if (args.exact) {
        Compensated total{};
        for (std::int64_t chunk = 0; chunk < args.chunks; ++chunk)
          total.add({partial[chunk * count + i], partial[(args.chunks + chunk) * count + i]});
        sum = total.value();
      }
    }
    for (std::int64_t chunk = 1; chunk < args.chunks && !args.exact; ++chunk) sum += partial[chunk * count + i];
    const Acc x = make_epilogue<T, Acc>(p, batch).exact(sum, within / p.n, within % p.n);
    if (p.wide_out)
      static_cast<Acc*>(p.out)[i] = x;
    else
      static_cast<T*>(p.out)[i] = convert<T>(x);
  }
}

}  // namespace xgemm::matmul
