// Matrix product on CUDA cores: the warp-tiled, double-buffered kernel for fp32 and fp64, every stride and size (sm_80 and
// later).
//
//   out = epilogue(A B), A m x k, B k x n, any strides (elements), any batch; T float or double. Tiles of all batches and
//   splits under 2^31.
//
//   CTA     bm x bn of one batch's product, k in steps of bk through two buffers in shared memory: the next step's elements
//           are loaded to registers (loader.cuh) while the current step is multiplied; one barrier per step.
//   Thread  tm x tn sums (fp32; fp64 for double) in quads of 4 x 4 spread over the warp's part of the tile, so that every read
//           of shared memory is a 16-byte access without bank conflicts.
//   Order   chunks of k as plan.h says. One CTA per tile: the sum over finished chunks waits in shared memory, in the thread's
//           own slot. Several: each writes its chunks' sums to the workspace, and simt_finish adds them in order.
//
// Floor: 2 m n k flop at 128 FMA per cycle and SM (67 TFLOP/s on an H200); bytes of A, B and out once. Per k, a thread reads
// tm + tn floats of shared memory for tm * tn multiply-adds.
#pragma once
#include "device/warp.cuh"
#include "matmul/fp16_split/line_scale.cuh"
#include "matmul/gemv/compensated.cuh"
#include "matmul/simt/loader.cuh"
#include "matmul/simt/plan.h"

namespace xgemm::matmul {

namespace simt {

/// The tile of a block. Tiles go in groups of rows, so that blocks in flight share operands in L2.
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

/// Reads the qualities of a tile's lines. True if all pairs of them pair well: then the block has nothing to do.
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
      if (!row && only.up) {  // the worse of the two weights' columns
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

/// Blocks per SM that registers are budgeted for: element-wise loads and fp64 sums take about twice as many registers.
template <class T, SimtTile kSimtTile, bool kVector>
constexpr int blocks_per_sm() {
  constexpr int kBlocks = shape(kSimtTile).blocks_per_sm;
  return kVector && sizeof(T) == 4 ? kBlocks : (kBlocks + 1) / 2;
}

}  // namespace simt

template <class T, SimtTile kSimtTile, bool kVector, Along kAlongA, Along kAlongB>
__global__ void __launch_bounds__(shape(kSimtTile).threads(), simt::blocks_per_sm<T, kSimtTile, kVector>())
    simt_gemm(const __grid_constant__ SimtArguments args) {
  constexpr SimtShape kTile = shape(kSimtTile);
  constexpr int kThreads = kTile.threads(), kBM = kTile.bm, kBN = kTile.bn, kBK = kTile.bk;
  constexpr int kQuadsM = kTile.tm() / 4, kQuadsN = kTile.tn() / 4;
  using LoaderA = simt::Loader<T, kBM, kBK, kThreads, kVector, kAlongA>;
  using LoaderB = simt::Loader<T, kBN, kBK, kThreads, kVector, kAlongB>;
  static_assert(kTile.lanes_m * kTile.lanes_n == 32 && kTile.tm() % 4 == 0 && kTile.tn() % 4 == 0);

  extern __shared__ __align__(16) unsigned char shared[];
  T* const tile_a = reinterpret_cast<T*>(shared);
  T* const tile_b = tile_a + 2 * kBK * LoaderA::kPitch;
  T* const totals = tile_b + 2 * kBK * LoaderB::kPitch;

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

  T sum[kQuadsM * 4][kQuadsN * 4];
  // A thread's slots: quad q of all threads lies together, so that a warp's access is one run of shared memory.
  T* const slots = totals + static_cast<int>(threadIdx.x) * 4;
  constexpr int kSlot = kThreads * 4, kQuadsAll = kQuadsM * 4 * kQuadsN;

  const auto multiply = [&](int buffer) {
    const T* ta = tile_a + buffer * kBK * LoaderA::kPitch + row;
    const T* tb = tile_b + buffer * kBK * LoaderB::kPitch + col;
#pragma unroll
    for (int k = 0; k < kBK; ++k) {
      Quad<T> fa[kQuadsM], fb[kQuadsN];
#pragma unroll
      for (int i = 0; i < kQuadsM; ++i) fa[i] = load_quad(ta + k * LoaderA::kPitch + i * 4 * kTile.lanes_m);
#pragma unroll
      for (int j = 0; j < kQuadsN; ++j) fb[j] = load_quad(tb + k * LoaderB::kPitch + j * 4 * kTile.lanes_n);
      if (k == kBK / 2 - 1) {  // the fetched step has arrived by now, and its stores hide behind the rest
        load_a.store(tile_a + (buffer ^ 1) * kBK * LoaderA::kPitch);
        load_b.store(tile_b + (buffer ^ 1) * kBK * LoaderB::kPitch);
      }
#pragma unroll
      for (int r = 0; r < kQuadsM * 4; ++r)
#pragma unroll
        for (int cc = 0; cc < kQuadsN * 4; ++cc) {
          const int c = r % 2 ? kQuadsN * 4 - 1 - cc : cc;  // serpentine: reuses an operand at each turn (+5 % measured)
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
    for (int buffer = 0;; buffer ^= 1) {
      left -= kBK;
      load_a.fetch(left), load_b.fetch(left);  // zeros after the last step: a branch here would cost a sixth of the rate
      multiply(buffer);  // its one call: hundreds of instructions, and most of the time to compile this kernel
      if (left <= 0) break;
      __syncthreads();
    }

    // Finished sums leave the registers at once: the code below needs many addresses and is not hot.
    const bool add = args.splits == 1 && chunk > 0;
#pragma unroll
    for (int q = 0; q < kQuadsAll; ++q) {
      Quad<T> here;
#pragma unroll
      for (int j = 0; j < 4; ++j) here.v[j] = sum[q / kQuadsN][q % kQuadsN * 4 + j];
      if (add) {
        const Quad<T> before = load_quad(slots + q * kSlot);
#pragma unroll
        for (int j = 0; j < 4; ++j) here.v[j] = before.v[j] + here.v[j];
      }
      store_quad(slots + q * kSlot, here);
    }
    if (args.splits == 1 && chunk + 1 < last) continue;

    const Epilogue<T, T> epilogue = make_epilogue<T, T>(p, batch);
    T* const out = static_cast<T*>(p.out) + batch * p.m * p.n;
    T* const partial = static_cast<T*>(args.partial) + (chunk * p.batches + batch) * p.m * p.n;
#pragma unroll 1
    for (int q = 0; q < kQuadsAll; ++q) {
      const int r = row + q / kQuadsN / 4 * 4 * kTile.lanes_m + q / kQuadsN % 4, c = col + q % kQuadsN * 4 * kTile.lanes_n;
      if (r >= rows_here || c >= cols_here) continue;
      const Quad<T> total = load_quad(slots + q * kSlot);
      const std::int64_t at = (row0 + r) * p.n + col0 + c;
      if (args.splits > 1) {
        store_row_quad(partial + at, total, cols_here - c, p.n);
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
      store_row_quad(out + at, epilogue.template quad<T>(total, row0 + r, col0 + c, cols_here - c), cols_here - c, p.n);
    }
  }
}

/// Adds the chunks' sums in order and applies the epilogue, one element per thread. Floor: the bytes of the partial sums and
/// out.
template <class T>
__global__ void __launch_bounds__(256) simt_finish(const __grid_constant__ SimtArguments args) {
  using Acc = Value<T>;
  const Problem& p = args.problem;
  const std::int64_t matrix = p.m * p.n, count = p.batches * matrix;
  const Acc* partial = static_cast<const Acc*>(args.partial);
  for (std::int64_t i = blockIdx.x * std::int64_t{256} + threadIdx.x; i < count; i += gridDim.x * std::int64_t{256}) {
    const std::int64_t batch = i / matrix, within = i - batch * matrix, row = within / p.n, col = within - row * p.n;
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
    const Acc x = make_epilogue<T, Acc>(p, batch).exact(sum, row, col);
    if (p.wide_out)
      static_cast<Acc*>(p.out)[i] = x;
    else
      static_cast<T*>(p.out)[i] = convert<T>(x);
  }
}

}  // namespace xgemm::matmul
