// fp32 products with at most kGemvLines rows or columns whose large operand is contiguous along its lines (x @ W, W row-major):
// lanes along the lines, warps along k, one launch (sm_90, clusters). Sizes and strides under 2^31; any batch.
//
//   With few rows, w is B and its lines are columns; with few columns, w is A and its lines are rows; x is the other operand,
//   of any strides.
//   Lane    4 lines; a warp 128, kSweepDepth of k at a time: as many 16-byte loads that bypass L1 in flight, and one load of x
//           for all of them, one element per lane, distributed by shuffles.
//   Order   group g of kSweepDepth k belongs to warp g % kSweepWarps of CTA g / kSweepWarps % shares of the cluster. A warp
//           adds in order of k; then come the warps of a CTA in order, then the CTAs of the cluster in order of their ranks.
//   Error   for K up to kSweepExact, compensated.cuh: rounding errors of a warp's first group and of the last additions are
//           kept.
//
// Floor: bytes of w once. In flight: kBuffers * 4 KiB per warp, 128 KiB per SM; 4.3 TB/s needs 32.
#pragma once
#include "device/ptx/cluster_exchange.cuh"
#include "device/ptx/grid.cuh"
#include "device/vector.cuh"
#include "device/warp.cuh"
#include "matmul/epilogue/apply.cuh"
#include "matmul/gemv/compensated.cuh"
#include "matmul/gemv/plan.h"

namespace xgemm::matmul {

/// Shared memory of kExact: the sums of a block's warps and of a cluster's blocks.
constexpr int sweep_bytes(int x_lines) {
  return (kSweepWarps + kSweepMaxSplits) * x_lines * kSweepColumns * static_cast<int>(sizeof(Compensated));
}

struct SweepArguments {
  Problem problem;
  bool stream_b;   ///< few rows: w is B (else few columns: w is A)
  int shares;      ///< the launch's cluster size
  unsigned tiles;  ///< of 128 lines, per batch
};

/// kX: lines of x. kVector: every quad of lines is one aligned access, wholly in or out of bounds. kBuffers: groups of k that a
/// warp has in flight. kExact: for k up to kSweepExact.
template <int kX, bool kVector, int kBuffers, bool kExact>
__global__ void __launch_bounds__(32 * kSweepWarps, kX == 4 || kBuffers == 2 ? 1 : 2)
    sweep_kernel(const __grid_constant__ SweepArguments args) {
  using Quad = Vector<float, 4>;
  constexpr int kDepth = kSweepDepth, kWarps = kSweepWarps, kLines = kSweepColumns;
  static_assert(kX * kDepth <= kWarpSize, "a lane an element of x");
  const Problem& p = args.problem;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int shares = args.shares, share = static_cast<int>(blockIdx.x) % shares;
  const unsigned tile = blockIdx.x / static_cast<unsigned>(shares), batch = tile / args.tiles;
  const int lines = static_cast<int>(args.stream_b ? p.n : p.m), x_lines = static_cast<int>(args.stream_b ? p.m : p.n);
  const int line0 = static_cast<int>(tile - batch * args.tiles) * kLines, k_size = static_cast<int>(p.k);
  const Operand &wo = args.stream_b ? p.b : p.a, &xo = args.stream_b ? p.a : p.b;
  const std::int64_t w_k = args.stream_b ? wo.row_stride : wo.col_stride, x_k = args.stream_b ? xo.col_stride : xo.row_stride,
                     x_step = args.stream_b ? xo.row_stride : xo.col_stride;
  // Line of element i of a lane's quad. Lines out of bounds repeat the last one; their sums are not stored.
  const auto line_of = [&](int i) { return line0 + (kVector ? 4 * lane + i : lane + 32 * i); };
  const float* const w = static_cast<const float*>(wo.data) + (batch ? batch_offset(p, wo, batch) : 0);
  const float* const quad = w + min(line_of(0), lines - (kVector ? 4 : 1));
  const float* const x =
      static_cast<const float*>(xo.data) + (batch ? batch_offset(p, xo, batch) : 0) + min(lane / kDepth, x_lines - 1) * x_step;

  ptx::grid_release();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (shares > 1) ptx::cluster_arrive_relaxed();  // the wait is before writes to another block's memory: it must have started
#endif
  ptx::grid_wait();
  float sums[kX][4] = {};
  Quad of_w[kBuffers][kDepth];
  float of_x[kBuffers];
  const auto load = [&]<bool kWhole>(int buffer, int k0) {
    const int depth = kWhole ? kDepth : k_size - k0;
    const float* from = quad + k0 * w_k;
    of_x[buffer] = kWhole || lane % kDepth < depth ? x[(k0 + lane % kDepth) * x_k] : 0.f;
#pragma unroll
    for (int i = 0; i < kDepth; ++i, from += w_k) {
      Quad& v = of_w[buffer][i];
      v = Quad{};
      if (!kWhole && i >= depth) continue;
      if constexpr (kVector) {
        v = stream_vector(from);
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] = from[min(32 * j, lines - 1 - min(line_of(0), lines - 1))];
      }
    }
  };
  const auto multiply = [&](int buffer) {
#pragma unroll
    for (int i = 0; i < kDepth; ++i)
#pragma unroll
      for (int r = 0; r < kX; ++r) {
        const float value = __shfl_sync(kFullWarp, of_x[buffer], r * kDepth + i);
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[r][j] = fmaf(value, of_w[buffer][i][j], sums[r][j]);
      }
  };
  // Each line's sum of a warp and its rounding error.
  extern __shared__ Compensated of_lines[];
  [[maybe_unused]] const auto of_warp = [&](int w, int r, int l) -> Compensated& { return of_lines[(w * kX + r) * kLines + l]; };
  [[maybe_unused]] const auto own_line = [&](int j) { return kVector ? 4 * lane + j : lane + 32 * j; };
  const auto multiply_first_buffer = [&]([[maybe_unused]] bool first) {
    if constexpr (kExact) {
      if (first) {
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
          for (int j = 0; j < 4; ++j) of_warp(warp, r, own_line(j)).off = off[j];
        }
        return;
      }
    }
    multiply(0);
  };
  const int step = kWarps * shares * kDepth;
  const int first_k = (share * kWarps + warp) * kDepth;
  int k0 = first_k;
  if constexpr (kBuffers == 2) {  // groups k0 and k0 + step in flight, then k0 + 2 step for the first ...
    const int whole = k0 + kDepth <= k_size ? (k_size - kDepth - k0) / step + 1 : 0;
    if (whole > 0) load.template operator()<true>(0, k0);
    for (int i = 0; i < whole; i += 2) {
      if (i + 1 < whole) load.template operator()<true>(1, k0 + (i + 1) * step);
      multiply_first_buffer(i == 0);
      if (i + 2 < whole) load.template operator()<true>(0, k0 + (i + 2) * step);
      if (i + 1 < whole) multiply(1);
    }
    k0 += whole * step;
  } else {
    for (; k0 + kDepth <= k_size; k0 += step) {
      load.template operator()<true>(0, k0);
      multiply_first_buffer(k0 == first_k);
    }
  }
  if (k0 < k_size) {
    load.template operator()<false>(0, k0);
    multiply_first_buffer(k0 == first_k);
  }

  const int line = static_cast<int>(threadIdx.x) % kLines, row = static_cast<int>(threadIdx.x) / kLines;
  static_assert(32 * kWarps >= kX * kLines);
  const bool mine = row < x_lines && line0 + line < lines;
  float total = 0;
  if constexpr (kExact) {
#pragma unroll
    for (int r = 0; r < kX; ++r)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        Compensated& own = of_warp(warp, r, own_line(j));
        own.sum = sums[r][j];
        if (first_k >= k_size) own.off = 0;  // else it was written above
      }
    __syncthreads();
    Compensated sum{};
    if (mine) {
      sum = of_warp(0, row, line);
#pragma unroll
      for (int i = 1; i < kWarps; ++i) sum.add(of_warp(i, row, line));
    }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    // In the cluster's first block, after its own warps'.
    const auto of_share = [&](int s) -> Compensated& { return of_lines[((kWarps + s) * kX + row) * kLines + line]; };
    if (shares > 1) {
      ptx::cluster_wait();
      if (mine) ptx::store_remote(ptx::remote_address(&of_share(share), 0), sum.sum, sum.off);
      ptx::cluster_sync();
      if (share > 0) return;
      if (mine) {
        sum = of_share(0);
        for (int i = 1; i < shares; ++i) sum.add(of_share(i));
      }
    }
#endif
    total = sum.value();
  } else {
    __shared__ float of_warps[kWarps][kX][kLines];
#pragma unroll
    for (int r = 0; r < kX; ++r)
#pragma unroll
      for (int j = 0; j < 4; ++j) of_warps[warp][r][kVector ? 4 * lane + j : lane + 32 * j] = sums[r][j];
    __syncthreads();
    if (mine) {
      total = of_warps[0][row][line];
#pragma unroll
      for (int i = 1; i < kWarps; ++i) total = plus(total, of_warps[i][row][line]);
    }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    __shared__ float of_shares[kSweepMaxSplits][kX][kLines];  // in the cluster's first block
    if (shares > 1) {
      ptx::cluster_wait();
      if (mine) ptx::store_remote(ptx::remote_address(&of_shares[share][row][line], 0), __float_as_uint(total));
      ptx::cluster_sync();
      if (share > 0) return;
      if (mine) {
        total = of_shares[0][row][line];
        for (int i = 1; i < shares; ++i) total = plus(total, of_shares[i][row][line]);
      }
    }
#endif
  }
  if (!mine) return;
  const auto epilogue = batch ? make_epilogue<float, float>(p, batch) : make_epilogue_at<float, float>(p);
  const std::int64_t r = args.stream_b ? row : line0 + line, c = args.stream_b ? line0 + line : row;
  static_cast<float*>(p.out)[(static_cast<std::int64_t>(batch) * p.m + r) * p.n + c] = epilogue.exact(total, r, c);
}

}  // namespace xgemm::matmul
