// fp32 matrix product on tensor cores in one launch, for problems too small or too narrow for the split pass of split_fp16.cuh: each
// element becomes hi + lo, two TF32 numbers, on its way from shared memory to registers; hi*hi + (hi*lo + lo*hi), mma.sync m16n8k8.
//
//   out = epilogue(A B), fp32, any strides, any batch, k >= kTf32MinK. Arguments, tiles, chunks of k and splits as kernels/simt.cuh has them.
//
//   Block   bm x bn, four warps; k in steps of 32 through two shared-memory buffers, global loads a step ahead in registers.
//   Layout  A tile lies as its operand does: [line][k] where k is contiguous, else [k][line], rows padded so that the fragments' 4-byte
//           reads hit 32 banks.
//   Sums    hi*hi of 32 k in one accumulator from zero, then added to fp32 registers: the tensor core rounds toward zero, four times.
//           The small products have an accumulator of their own for a whole chunk.
//   Range   TF32 has fp32's exponents, so nothing is scaled. What hi + lo cannot carry (Inf, NaN, magnitudes from 2^127 on, nonzero ones
//           under 2^-100) is seen by the loads; its rows and columns are done again for that chunk by fused multiply-adds.
//   Order   A function of k alone, as in simt.cuh: which lines are done again depends on the lines, not on their neighbours.
//   Archs   sm_80 and later.
//
// Floor: 6 m n k flop at the TF32 rate, or the bytes of A, B and out. An element of a fragment costs 4 integer or fp32 instructions.
#pragma once
#include "matmul/kernels/simt.cuh"

namespace xgemm::matmul {
namespace tf32x3 {

inline constexpr int kThreads = 128, kDepth = 32;

__device__ __forceinline__ bool suspicious(float x) {
  const unsigned magnitude = __float_as_uint(x) & 0x7fffffffu;
  return magnitude >= 0x7f000000u || magnitude - 1 < 0x0d800000u - 1;  // 2^127; 2^-100, but zero passes
}

struct Halves {
  std::uint32_t hi, lo;
};
__device__ __forceinline__ Halves split(float x) {
  const std::uint32_t hi = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;  // to nearest; mma reads the upper 19 bits
  return {hi, __float_as_uint(x - __uint_as_float(hi)) + 0x1000u};
}

__device__ __forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Moves kLines x kDepth elements of one operand to shared memory, quads along whichever direction is contiguous.
template <int kLines, bool kVector, bool kAlongK>
class Loader {
 public:
  static constexpr int kQuads = kLines * kDepth / 4 / kThreads;
  static constexpr int kLineStep = kAlongK ? kDepth + 4 : 1, kKStep = kAlongK ? 1 : kLines + 8;  // in shared memory
  static constexpr int kSize = kAlongK ? kLines * (kDepth + 4) : kDepth * (kLines + 8);

  __device__ __forceinline__ Loader(const float* base, const Access& access, int lines) : base_(base), access_(access), lines_(lines) {}

  __device__ __forceinline__ void seek(std::int64_t k) {
    next_ = base_ + line(0) * access_.line_stride + (k + depth(0)) * access_.k_stride;
  }

  /// Reads the next step to registers; elements `left` or deeper are zero.
  __device__ __forceinline__ void fetch(int left) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      registers_[i] = {{0.f, 0.f, 0.f, 0.f}};
      const float* const here = next_ + i * (kAlongK ? kLineStride * access_.line_stride : kDepthStride * access_.k_stride);
      if constexpr (kVector) {
        if (line(i) < lines_ && depth(i) < left) registers_[i] = load_vector<4>(here);
      } else {
        const int inside = kAlongK ? (line(i) < lines_ ? left - depth(i) : 0) : (depth(i) < left ? lines_ - line(i) : 0);
        const std::int64_t step = kAlongK ? access_.k_stride : access_.line_stride;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (j < inside) registers_[i][j] = here[j * step];
      }
    }
    next_ += kDepth * access_.k_stride;
  }

  /// Stores the fetched step; marks lines that hold what a split cannot carry.
  __device__ __forceinline__ void store(float* tile, unsigned char* marks, bool& marked) const {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      store_vector(tile + line(i) * kLineStep + depth(i) * kKStep, registers_[i]);
      const bool bad = suspicious(registers_[i][0]) | suspicious(registers_[i][1]) | suspicious(registers_[i][2]) |
                       suspicious(registers_[i][3]);
      if (bad) {
        marked = true;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (suspicious(registers_[i][j])) marks[line(i) + (kAlongK ? 0 : j)] = 1;
      }
    }
  }

 private:
  // From one of a thread's quads to its next.
  static constexpr int kLineStride = kThreads / (kDepth / 4), kDepthStride = kThreads / (kLines / 4);
  __device__ __forceinline__ static int line(int i) {
    const int t = static_cast<int>(threadIdx.x);
    return kAlongK ? t / (kDepth / 4) + i * kLineStride : t % (kLines / 4) * 4;
  }
  __device__ __forceinline__ static int depth(int i) {
    const int t = static_cast<int>(threadIdx.x);
    return kAlongK ? t % (kDepth / 4) * 4 : t / (kLines / 4) + i * kDepthStride;
  }

  const float* base_;
  const Access& access_;
  int lines_;
  const float* next_;
  Vector<float, 4> registers_[kQuads];
};

}  // namespace tf32x3

template <Kernel kKernel, bool kVector, bool kAlongKA, bool kAlongKB>
struct Tf32x3 {
  static constexpr Tile kTile = info(kKernel).tile;
  using LoaderA = tf32x3::Loader<kTile.bm, kVector, kAlongKA>;
  using LoaderB = tf32x3::Loader<kTile.bn, kVector, kAlongKB>;
  static constexpr int kBuffer = LoaderA::kSize + LoaderB::kSize;
  static constexpr int kSharedBytes = 4 * (2 * kBuffer + kTile.bm * kTile.bn);
  static_assert(kTile.threads() == tf32x3::kThreads && kTile.bk == tf32x3::kDepth);
};

template <Kernel kKernel, bool kVector, bool kAlongKA, bool kAlongKB>
__global__ void __launch_bounds__(tf32x3::kThreads, kVector && (kAlongKA || kAlongKB) ? info(kKernel).tile.blocks_per_sm : 2)
    tf32x3_gemm(const __grid_constant__ SimtArguments args) {
  using namespace tf32x3;
  using Shape = Tf32x3<kKernel, kVector, kAlongKA, kAlongKB>;
  using LoaderA = typename Shape::LoaderA;
  using LoaderB = typename Shape::LoaderB;
  constexpr Tile kTile = Shape::kTile;
  constexpr int kBM = kTile.bm, kBN = kTile.bn, kTilesM = kBM / kTile.warps_m / 16, kTilesN = kBN / kTile.warps_n / 8;
  constexpr int kSums = kTilesM * kTilesN;

  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ unsigned char marks_a[kBM], marks_b[kBN];
  float* const buffers = reinterpret_cast<float*>(shared);
  float* const slots = buffers + 2 * Shape::kBuffer + threadIdx.x;  // this thread's sums over finished chunks
  for (int i = static_cast<int>(threadIdx.x); i < kBM + kBN; i += kThreads) (i < kBM ? marks_a[i] : marks_b[i - kBM]) = 0;

  const Problem& p = args.problem;
  const std::int64_t rows = (p.m + kBM - 1) / kBM, cols = (p.n + kBN - 1) / kBN, tiles = rows * cols;
  const std::int64_t block = blockIdx.x, batch = block / tiles % p.batches, part = block / tiles / p.batches;
  const auto [tile_row, tile_col] = simt::tile_index(block % tiles, rows, cols);
  const std::int64_t row0 = tile_row * kBM, col0 = tile_col * kBN;
  const int rows_here = static_cast<int>(p.m - row0 < kBM ? p.m - row0 : kBM);
  const int cols_here = static_cast<int>(p.n - col0 < kBN ? p.n - col0 : kBN);
  LoaderA load_a(static_cast<const float*>(p.a.data) + batch_offset(p, p.a, batch) + row0 * args.a.line_stride, args.a, rows_here);
  LoaderB load_b(static_cast<const float*>(p.b.data) + batch_offset(p, p.b, batch) + col0 * args.b.line_stride, args.b, cols_here);

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / 4, quad = lane % 4;
  const int row = warp / kTile.warps_n * (kBM / kTile.warps_m), col = warp % kTile.warps_n * (kBN / kTile.warps_n);
  const int from_a = (row + group) * LoaderA::kLineStep + quad * LoaderA::kKStep;
  const int from_b = LoaderA::kSize + (col + group) * LoaderB::kLineStep + quad * LoaderB::kKStep;
  bool marked = false;

  // d[4 * c of m16n8]: rows group, group + 8; columns 2 quad, 2 quad + 1.
  float sum[kSums][4], small[kSums][4], big[kSums][4];
  const auto clear = [](float(&x)[kSums][4]) {
#pragma unroll
    for (int i = 0; i < kSums; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) x[i][e] = 0;
  };
  const auto store = [&](int buffer) {
    load_a.store(buffers + buffer * Shape::kBuffer, marks_a, marked);
    load_b.store(buffers + buffer * Shape::kBuffer + LoaderA::kSize, marks_b, marked);
  };
  const auto multiply = [&](int buffer, bool more) {
    const float* const tile = buffers + buffer * Shape::kBuffer;
    clear(big);
    // Not all at once: the compiler would fetch every step's fragments first, and spill.
#pragma unroll 2
    for (int step = 0; step < kDepth / 8; ++step) {
      std::uint32_t hi_a[kTilesM][4], lo_a[kTilesM][4];
#pragma unroll
      for (int i = 0; i < kTilesM; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const Halves x = split(tile[from_a + (16 * i + e % 2 * 8) * LoaderA::kLineStep + (8 * step + e / 2 * 4) * LoaderA::kKStep]);
          hi_a[i][e] = x.hi, lo_a[i][e] = x.lo;
        }
#pragma unroll
      for (int j = 0; j < kTilesN; ++j) {
        std::uint32_t hi_b[2], lo_b[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const Halves x = split(tile[from_b + 8 * j * LoaderB::kLineStep + (8 * step + e * 4) * LoaderB::kKStep]);
          hi_b[e] = x.hi, lo_b[e] = x.lo;
        }
#pragma unroll
        for (int i = 0; i < kTilesM; ++i) {
          mma(big[i * kTilesN + j], hi_a[i], hi_b);
          mma(small[i * kTilesN + j], lo_a[i], hi_b);
          mma(small[i * kTilesN + j], hi_a[i], lo_b);
        }
      }
      if (step == 1 && more) store(buffer ^ 1);  // the fetched step has arrived by now
    }
#pragma unroll
    for (int i = 0; i < kSums; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][e] += big[i][e];
  };
  const auto line_a = [&](int i, int e) { return row + i / kTilesN * 16 + e / 2 * 8 + group; };
  const auto line_b = [&](int i, int e) { return col + i % kTilesN * 8 + 2 * quad + e % 2; };

  const std::int64_t per_block = (args.chunks + args.splits - 1) / args.splits;
  const std::int64_t first = part * per_block, last = first + per_block < args.chunks ? first + per_block : args.chunks;
  for (std::int64_t chunk = first; chunk < last; ++chunk) {
    const std::int64_t k_begin = chunk * args.chunk, k_end = k_begin + args.chunk < p.k ? k_begin + args.chunk : p.k;
    clear(sum);
    clear(small);
    load_a.seek(k_begin);
    load_b.seek(k_begin);
    int left = static_cast<int>(k_end - k_begin);
    load_a.fetch(left);
    load_b.fetch(left);
    __syncthreads();  // the previous chunk's last buffer has been read
    store(0);
    __syncthreads();
    int buffer = 0;
    for (left -= kDepth; left > 0; left -= kDepth) {
      load_a.fetch(left);
      load_b.fetch(left);
      multiply(buffer, true);
      buffer ^= 1;
      __syncthreads();
    }
    multiply(buffer, false);
#pragma unroll
    for (int i = 0; i < kSums; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][e] += small[i][e];

    if (__syncthreads_or(marked)) {  // rare: the chunk again by multiply-adds, for the pairs of lines concerned
      clear(big);
      load_a.seek(k_begin);
      load_b.seek(k_begin);
#pragma unroll 1
      for (left = static_cast<int>(k_end - k_begin); left > 0; left -= kDepth) {
        load_a.fetch(left);
        load_b.fetch(left);
        __syncthreads();
        store(0);
        __syncthreads();
#pragma unroll 1
        for (int k = 0; k < min(left, kDepth); ++k)
#pragma unroll
          for (int i = 0; i < kSums; ++i)
#pragma unroll
            for (int e = 0; e < 4; ++e)
              big[i][e] = fmaf(buffers[line_a(i, e) * LoaderA::kLineStep + k * LoaderA::kKStep],
                               buffers[LoaderA::kSize + line_b(i, e) * LoaderB::kLineStep + k * LoaderB::kKStep], big[i][e]);
      }
#pragma unroll
      for (int i = 0; i < kSums; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (marks_a[line_a(i, e)] | marks_b[line_b(i, e)]) sum[i][e] = big[i][e];
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < kBM + kBN; i += kThreads) (i < kBM ? marks_a[i] : marks_b[i - kBM]) = 0;
      marked = false;
    }

    const bool add = args.splits == 1 && chunk > 0;
#pragma unroll
    for (int i = 0; i < kSums; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float* const slot = slots + (4 * i + e) * kThreads;
        *slot = add ? *slot + sum[i][e] : sum[i][e];
      }
    if (args.splits == 1 && chunk + 1 < last) continue;

    const auto epilogue = make_epilogue<float, float>(p, batch);
    float* const out = args.splits > 1 ? static_cast<float*>(args.partial) + (chunk * p.batches + batch) * p.m * p.n
                                       : static_cast<float*>(p.out) + batch * p.m * p.n;
#pragma unroll 2
    for (int i = 0; i < 2 * kSums; ++i) {
      const int r = line_a(i / 2, i % 2 * 2), c = line_b(i / 2, 0);
      if (r >= rows_here || c >= cols_here) continue;
      Vector<float, 2> pair{{slots[(2 * i) * kThreads], slots[(2 * i + 1) * kThreads]}};
      const bool both = c + 1 < cols_here;
      if (args.splits == 1) {
        pair[0] = epilogue(pair[0], row0 + r, col0 + c);
        if (both) pair[1] = epilogue(pair[1], row0 + r, col0 + c + 1);
      }
      float* const target = out + (row0 + r) * p.n + col0 + c;
      if (both && p.n % 2 == 0) {
        store_vector(target, pair);
      } else {
        target[0] = pair[0];
        if (both) target[1] = pair[1];
      }
    }
  }
}

}  // namespace xgemm::matmul
