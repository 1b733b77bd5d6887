// fp32 products with at most kGemvLines rows or columns whose large operand is contiguous along its lines (x @ W, W row-major):
// lanes along the lines, warps along k, one launch (sm_90, clusters). Sizes and strides under 2^31; any batch.
//
//   With few rows, w is B and its lines are columns; with few columns, w is A and its lines are rows; x is the other operand,
//   of any strides.
//   Lane    4 lines; a warp 128, kSweepDepth of k at a time: as many 16-byte loads that bypass L1 in flight, and one load of x
//           for all of them, one element per lane, distributed by shuffles.
//   CTA     kSweepStrips strips of k, or as many as there are groups: a warp each, or two in turn where a batch's CTAs hide each
//           other's start and end.
//   Order   group g of kSweepDepth k belongs to strip g % strips of CTA g / strips % splits of the cluster. A strip is added in
//           order of k; then come the strips of a CTA in order, then the CTAs of the cluster in order of their ranks.
//   Error   for K up to kSweepExact, compensated.cuh: rounding errors of a strip's first group and of the last additions are
//           kept.
//
// Floor: bytes of w once. In flight: kBuffers * 4 KiB per warp, up to 128 KiB per SM; 4.3 TB/s needs 32.
#include "device/launch.h"
#include "device/ptx/cluster.cuh"
#include "device/ptx/grid.cuh"
#include "device/vector.cuh"
#include "device/warp.cuh"
#include "matmul/dispatch.h"
#include "matmul/epilogue/apply.cuh"
#include "matmul/gemv/compensated.cuh"
#include "matmul/gemv/plan.h"
#include "matmul/launch.h"

namespace xgemm::matmul {

/// Dynamic shared memory: rounding errors of a CTA's strips; or, of longer K, the sums of a cluster's CTAs.
constexpr int sweep_bytes(int x_lines) { return kSweepStrips * x_lines * kSweepColumns * static_cast<int>(sizeof(float)); }
static_assert(kSweepMaxSplits <= kSweepStrips);

struct SweepArguments {
  Problem problem;
  bool stream_b;   ///< few rows: w is B (else few columns: w is A)
  int splits;      ///< the launch's cluster size
  unsigned tiles;  ///< of 128 lines, per batch
};

/// A warp's groups of k: loads, and sums of a strip.
template <int kX, bool kVector, int kBuffers>
struct SweepWarp {
  static constexpr int kDepth = kSweepDepth;
  static_assert(kX * kDepth <= kWarpSize, "a lane an element of x");
  using Lines = float[kX][kSweepColumns];  // a tile's
  const float *quad, *x;                   ///< a lane's lines of w, and its line of x, at k = 0
  std::int64_t w_k, x_k;                   ///< strides
  int k_size, lane, last;                  ///< last: lines of w after the lane's first
  float sums[kX][4] = {};
  Vector<float, 4> of_w[kBuffers][kDepth];
  float of_x[kBuffers];

  /// Element j of the lane's quad of lines, in the tile.
  __device__ __forceinline__ int line(int j) const { return kVector ? 4 * lane + j : lane + 32 * j; }

  template <bool kWhole>
  __device__ __forceinline__ void load(int buffer, int k0) {
    const int depth = kWhole ? kDepth : k_size - k0;
    const float* from = quad + k0 * w_k;
    of_x[buffer] = kWhole || lane % kDepth < depth ? x[(k0 + lane % kDepth) * x_k] : 0.f;
#pragma unroll
    for (int i = 0; i < kDepth; ++i, from += w_k) {
      auto& v = of_w[buffer][i];
      v = {};
      if (!kWhole && i >= depth) continue;
      if constexpr (kVector) {
        v = stream_vector(from);
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] = from[min(32 * j, last)];
      }
    }
  }
  __device__ __forceinline__ void multiply(int buffer) {
#pragma unroll
    for (int i = 0; i < kDepth; ++i)
#pragma unroll
      for (int r = 0; r < kX; ++r) {
        const float value = __shfl_sync(kFullWarp, of_x[buffer], r * kDepth + i);
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[r][j] = fmaf(value, of_w[buffer][i][j], sums[r][j]);
      }
  }
  __device__ __forceinline__ void multiply_exactly(Lines& errors) {
#pragma unroll
    for (int r = 0; r < kX; ++r) {
      float off[4] = {};
#pragma unroll
      for (int i = 0; i < kDepth; ++i) {
        const float value = __shfl_sync(kFullWarp, of_x[0], r * kDepth + i);
#pragma unroll
        for (int j = 0; j < 4; ++j) off[j] = plus(off[j], add_product(sums[r][j], value, of_w[0][i][j]));
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) errors[r][line(j)] = off[j];
    }
  }
  /// Adds groups k0, k0 + step, ... of k.
  __device__ __forceinline__ void add(int k0, int step) {
    if constexpr (kBuffers == 2) {  // groups k0 and k0 + step in flight, then k0 + 2 step for the first ...
      const int whole = k0 + kDepth <= k_size ? (k_size - kDepth - k0) / step + 1 : 0;
      if (whole > 0) load<true>(0, k0);
      for (int i = 0; i < whole; i += 2) {
        if (i + 1 < whole) load<true>(1, k0 + (i + 1) * step);
        multiply(0);
        if (i + 2 < whole) load<true>(0, k0 + (i + 2) * step);
        if (i + 1 < whole) multiply(1);
      }
      k0 += whole * step;
    } else {
      for (; k0 + kDepth <= k_size; k0 += step) {
        load<true>(0, k0);
        multiply(0);
      }
    }
    if (k0 < k_size) {
      load<false>(0, k0);
      multiply(0);
    }
  }
  /// Stores the strip's sums and begins another.
  __device__ __forceinline__ void move_sums(Lines& to) {
#pragma unroll
    for (int r = 0; r < kX; ++r)
#pragma unroll
      for (int j = 0; j < 4; ++j) to[r][line(j)] = sums[r][j], sums[r][j] = 0;
  }
};

/// The sum over strips or splits, in order.
template <int kX>
__device__ __forceinline__ float sweep_sum(const float (*of)[kX][kSweepColumns], int count, int row, int line) {
  float total = of[0][row][line];
  for (int i = 1; i < count; ++i) total = plus(total, of[i][row][line]);
  return total;
}

/// kX: lines of x. kVector: every quad of lines is one aligned access, wholly in or out of bounds. kBuffers: groups of k that a
/// warp has in flight; with one, three CTAs of half as many warps fit an SM.
template <int kX, bool kVector, int kBuffers>
__global__ void __launch_bounds__(32 * kSweepStrips / (kBuffers == 1 ? 2 : 1), kBuffers == 1 ? 3 : 1)
    sweep_kernel(const __grid_constant__ SweepArguments args) {
  using Warp = SweepWarp<kX, kVector, kBuffers>;
  using Lines = typename Warp::Lines;
  constexpr int kDepth = kSweepDepth, kLines = kSweepColumns;
  const Problem& p = args.problem;
  const bool exact = p.k <= kSweepExact;
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x), lane = thread % kWarpSize;
  const int splits = args.splits, split = static_cast<int>(blockIdx.x) % splits;
  const unsigned tile = blockIdx.x / static_cast<unsigned>(splits), batch = tile / args.tiles;
  const int lines = static_cast<int>(args.stream_b ? p.n : p.m), x_lines = static_cast<int>(args.stream_b ? p.m : p.n);
  const int line0 = static_cast<int>(tile - batch * args.tiles) * kLines, k_size = static_cast<int>(p.k);
  const Operand &wo = args.stream_b ? p.b : p.a, &xo = args.stream_b ? p.a : p.b;
  const std::int64_t w_k = args.stream_b ? wo.row_stride : wo.col_stride, x_k = args.stream_b ? xo.col_stride : xo.row_stride,
                     x_step = args.stream_b ? xo.row_stride : xo.col_stride;
  std::int64_t w_batch = 0, x_batch = 0;
  each_batch_dim(p, batch,
                 [&](int d, std::int64_t at) { w_batch += at * wo.batch_stride[d], x_batch += at * xo.batch_stride[d]; });
  // Lines out of bounds repeat the last one; their sums are not stored.
  const int own_line = line0 + (kVector ? 4 * lane : lane);
  const float* const w = static_cast<const float*>(wo.data) + w_batch + min(own_line, lines - (kVector ? 4 : 1));
  const float* const x = static_cast<const float*>(xo.data) + x_batch + min(lane / kDepth, x_lines - 1) * x_step;

  ptx::grid_release();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (splits > 1) ptx::cluster_arrive_relaxed();  // the wait is before writes to another block's memory: it must have started
#endif
  ptx::grid_wait();
  Warp own{w, x, w_k, x_k, k_size, lane, lines - 1 - min(own_line, lines - 1)};
  __shared__ Lines of_strips[kSweepStrips];
  extern __shared__ float dynamic[];
  Lines* const more = reinterpret_cast<Lines*>(dynamic);  // rounding errors of strips, or sums of splits
  const int strips = exact ? min(kSweepStrips, (k_size + kDepth - 1) / kDepth) : kSweepStrips;
  const int step = kSweepStrips * splits * kDepth;
  for (int strip = thread / kWarpSize; strip < strips; strip += threads / kWarpSize) {
    int k0 = (split * kSweepStrips + strip) * kDepth;
    if (exact) {
      own.template load<false>(0, k0);
      own.multiply_exactly(more[strip]);
      k0 += step;
    }
    own.add(k0, step);
    own.move_sums(of_strips[strip]);
  }
  __syncthreads();

  // Thread t adds up elements t, t + threads, ... of the tile: element e is line e % kLines of x's line e / kLines.
  const auto each = [&](const auto& f) {
    for (int e = thread; e < x_lines * kLines; e += threads)
      if (line0 + e % kLines < lines) f(e / kLines, e % kLines);
  };
  const auto store = [&](float total, int row, int line) {
    const auto epilogue = batch ? make_epilogue<float, float>(p, batch) : make_epilogue_at<float, float>(p);
    const std::int64_t r = args.stream_b ? row : line0 + line, c = args.stream_b ? line0 + line : row;
    static_cast<float*>(p.out)[(static_cast<std::int64_t>(batch) * p.m + r) * p.n + c] = epilogue.exact(total, r, c);
  };
  if (exact) {  // no cluster: sweep_splits
    each([&](int row, int line) {
      Compensated total{};
      for (int i = 0; i < strips; ++i) total.add({of_strips[i][row][line], more[i][row][line]});
      store(total.value(), row, line);
    });
    return;
  }
  const auto of_block = [&](int row, int line) { return sweep_sum(of_strips, kSweepStrips, row, line); };
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (splits > 1) {
    ptx::cluster_wait();
    each([&](int row, int line) {
      ptx::store_remote(ptx::remote_address(&more[split][row][line], 0), __float_as_uint(of_block(row, line)));
    });
    ptx::cluster_sync();
    if (split > 0) return;
    each([&](int row, int line) { store(sweep_sum(more, splits, row, line), row, line); });
    return;
  }
#endif
  each([&](int row, int line) { store(of_block(row, line), row, line); });
}

namespace {

template <int kX, bool kVector, int kBuffers>
void launch(const Problem& p, const GemvPlan& plan, bool stream_b, cudaStream_t stream) {
  constexpr auto kSweep = sweep_kernel<kX, kVector, kBuffers>;
  constexpr int kBytes = sweep_bytes(kX);
  allow_shared<kSweep, kBytes>();
  const auto splits = static_cast<unsigned>(plan.splits);
  enqueue(kSweep,
          {.blocks = static_cast<unsigned>(plan.tiles) * splits,
           .threads = 32u * (plan.many ? kSweepStrips / 2 : kSweepStrips),
           .shared_bytes = p.k <= kSweepExact || splits > 1 ? static_cast<std::size_t>(kBytes) : 0,
           .cluster = splits,
           .early = true},
          stream, SweepArguments{p, stream_b, static_cast<int>(splits), static_cast<unsigned>(plan.tiles / p.batches)});
}

}  // namespace

void launch_sweep(const Problem& p, const GemvPlan& plan, cudaStream_t stream) {
  const bool stream_b = sweep_streams_b(p);
  const bool vector =
      stream_b ? !b_along_k(p) && has_vectors(p, lines_of_b(p), 4) : !a_along_k(p) && has_vectors(p, lines_of_a(p), 4);
  dispatch_flags(vector, (stream_b ? p.m : p.n) > 1, [&]<bool kVector, bool kSeveral>() {
    if constexpr (kSeveral)
      launch<4, kVector, 2>(p, plan, stream_b, stream);
    else  // of many blocks several fit an SM; a block that is alone needs more bytes in flight
      plan.many ? launch<1, kVector, 1>(p, plan, stream_b, stream) : launch<1, kVector, 2>(p, plan, stream_b, stream);
  });
}

}  // namespace xgemm::matmul
