// Products with at most kGemvLines rows or columns: the large operand is read once, as a stream.
//
//   With few rows, w is B and its lines are columns; with few columns, w is A and its lines are rows; x is the other operand.
//   Any strides and batch; T float or double.
//
//   CTA     32 lines of w (one per lane) by all of x, for a range of chunks of k; its warps take chunks in turn.
//   Warp    streams its chunks of w and x through its own ring of asynchronous copies; no barrier until the end.
//   Order   as plan.h says: a lane adds its products along k from zero for every chunk. With one CTA per tile, chunk sums
//           are added in shared memory, in order; with several, they go to the workspace and simt_finish adds them.
//   Exact   fp32 "highest": the rounding errors of chunks' additions are summed, too (compensated.cuh); up to K = kExact, those
//           of each product.
//   Archs   sm_80 and later. Limits: as simt/kernel.cuh; at most kGemvMaxChunks chunks per CTA.
//
// Floor: bytes of w once. In flight: 3 stages of 4 KiB per warp, 48 KiB per CTA; 4.3 TB/s needs 26 KiB per SM.
#pragma once
#include <cuda_pipeline.h>

#include "device/warp.cuh"
#include "matmul/gemv/compensated.cuh"
#include "matmul/gemv/plan.h"
#include "matmul/simt/loader.cuh"

namespace xgemm::matmul {

struct GemvArguments {
  SimtArguments simt;
  bool stream_b;              ///< few rows: w is B (else few columns: w is A)
  bool x_vectors, w_vectors;  ///< pieces of gemv::kPiece elements are aligned accesses, wholly in or out of bounds
};

namespace gemv {

inline constexpr int kWarps = 4, kThreads = 32 * kWarps, kStages = 4, kStageBytes = 128;  // a line's bytes in a stage

template <class T>
inline constexpr int kDepth = kStageBytes / static_cast<int>(sizeof(T));
/// Elements of an asynchronous copy: what plan.h calls a quad, or 16 bytes of it.
template <class T>
inline constexpr int kPiece = sizeof(T) == 8 ? 2 : 4;
/// Lines along k are padded by 16 bytes, so that 8 lanes that read 16 bytes each have no bank conflicts.
template <class T>
inline constexpr int kPitch = kDepth<T> + kVectorWidth<T>;

template <class T, int kLines>
inline constexpr int kStage = 32 * kPitch<T> + kLines * kDepth<T>;
template <class T, int kLines>
inline constexpr int kSharedBytes =
    static_cast<int>(kWarps * kStages * kStage<T, kLines> * sizeof(T) + (kGemvMaxChunks + kWarps) * kLines * 32 * sizeof(T));

/// A warp starts the copy of kLines lines by kDepth of k: to [line][k] with `pitch`, or to [k][line]. Lines from `lines` on
/// repeat the last one (their sums are not stored); k from `depth` on is zero. `place`: (first line, first k).
template <class T, int kLines, bool kAlongK, int kLinePitch>
__device__ __forceinline__ void copy(T* shared, const T* place, const Access& access, int lines, int depth, bool vectors,
                                     int lane) {
  const auto move = [&]<int kWidth>() {
    constexpr int kRow = (kAlongK ? kDepth<T> : kLines) / kWidth, kPieces = kLines * kDepth<T> / kWidth;
    constexpr int kUnroll = kWidth == 1 ? 4 : 8;
#pragma unroll kUnroll
    for (int piece = lane; piece < kPieces; piece += 32) {
      const int along = piece % kRow * kWidth, across = piece / kRow;
      const int line = kAlongK ? across : along, k = kAlongK ? along : across, last = lines - (kAlongK ? 1 : kWidth);
      T* const to = shared + (kAlongK ? line * kLinePitch + k : k * kLines + line);
      const T* const from = place + (line < last ? line : last) * access.line_stride + k * access.k_stride;
      __pipeline_memcpy_async(to, k < depth ? from : place, sizeof(T) * kWidth, k < depth ? 0 : sizeof(T) * kWidth);
    }
  };
  if (vectors)
    move.template operator()<kPiece<T>>();
  else
    move.template operator()<1>();
}

/// Up to this K, a sum may have so few products that each one's rounding shows.
inline constexpr std::int64_t kExact = 256;

/// kExact: fp32 alone.
template <bool kExact, class T>
__device__ __forceinline__ void add(T& sum, [[maybe_unused]] T& off, T x, T w) {
  if constexpr (kExact)
    off = plus(off, add_product(sum, x, w));
  else
    sum = fma(x, w, sum);
}

}  // namespace gemv

template <class T, int kLines, bool kAlongK>
__global__ void __launch_bounds__(gemv::kThreads, 2) gemv_kernel(const __grid_constant__ GemvArguments args) {
  constexpr int kDepth = gemv::kDepth<T>, kPitch = gemv::kPitch<T>, kWidth = kVectorWidth<T>, kStages = gemv::kStages;
  extern __shared__ __align__(16) unsigned char shared[];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  T* const ring = reinterpret_cast<T*>(shared) + warp * kStages * gemv::kStage<T, kLines>;
  T* const chunk_sums = reinterpret_cast<T*>(shared) + gemv::kWarps * kStages * gemv::kStage<T, kLines>;

  T* const warp_offs = chunk_sums + kGemvMaxChunks * kLines * 32;  // exact: each warp's rounding errors

  const Problem& p = args.simt.problem;
  const Access &wa = args.stream_b ? args.simt.b : args.simt.a, &xa = args.stream_b ? args.simt.a : args.simt.b;
  const std::int64_t w_lines = args.stream_b ? p.n : p.m, tiles = (w_lines + 31) / 32;
  const int x_lines = static_cast<int>(args.stream_b ? p.m : p.n);
  const std::int64_t block = blockIdx.x, batch = block / tiles % p.batches, split = block / tiles / p.batches;
  const std::int64_t line0 = block % tiles * 32, line = line0 + lane;
  const int lines_here = static_cast<int>(w_lines - line0 < 32 ? w_lines - line0 : 32);
  const Operand &wo = args.stream_b ? p.b : p.a, &xo = args.stream_b ? p.a : p.b;
  const T* const w = static_cast<const T*>(wo.data) + batch_offset(p, wo, batch) + line0 * wa.line_stride;
  const T* const x = static_cast<const T*>(xo.data) + batch_offset(p, xo, batch);

  const std::int64_t per_block = (args.simt.chunks + args.simt.splits - 1) / args.simt.splits, first = split * per_block;
  const std::int64_t end = first + per_block < args.simt.chunks ? first + per_block : args.simt.chunks;
  /// A position in the warp's sequence of stages: every kWarps-th chunk.
  struct Cursor {
    std::int64_t chunk, k;
  };
  const auto end_of = [&](std::int64_t chunk) {
    const std::int64_t k = (chunk + 1) * args.simt.chunk;
    return k < p.k ? k : p.k;
  };
  const auto advance = [&](Cursor& at) {
    at.k += kDepth;
    if (at.k >= end_of(at.chunk)) {
      at.chunk += gemv::kWarps;
      at.k = at.chunk * args.simt.chunk;
    }
  };
  Cursor next{first + warp, (first + warp) * args.simt.chunk}, now = next;
  const auto start_copy = [&](int slot) {
    if (next.chunk < end) {
      T* const stage = ring + slot * gemv::kStage<T, kLines>;
      const std::int64_t left = end_of(next.chunk) - next.k;
      const int depth = static_cast<int>(left < kDepth ? left : kDepth);
      gemv::copy<T, 32, kAlongK, kPitch>(stage, w + next.k * wa.k_stride, wa, lines_here, depth, args.w_vectors, lane);
      gemv::copy<T, kLines, true, kDepth>(stage + 32 * kPitch, x + next.k * xa.k_stride, xa, x_lines, depth, args.x_vectors,
                                          lane);
      advance(next);
    }
    __pipeline_commit();  // an empty group too: the wait counts groups
  };
  /// Offset of the sum of (line, j) of w and x in a row-major m x n matrix.
  const auto offset = [&](int j) { return args.stream_b ? j * p.n + line : line * p.n + j; };

#pragma unroll 1
  for (int s = 0; s < kStages - 1; ++s) start_copy(s);
  T sums[kLines] = {}, off[kLines] = {};
  for (int slot = 0; now.chunk < end; slot = (slot + 1) % kStages) {
    __pipeline_wait_prior(kStages - 2);
    __syncwarp();  // all lanes' copies of this stage have arrived, and all lanes have read the stage that is overwritten next
    start_copy((slot + kStages - 1) % kStages);
    const T* const of_w = ring + slot * gemv::kStage<T, kLines>;
    const T* const of_x = of_w + 32 * kPitch;
    const auto multiply = [&]<bool kExact>() {
#pragma unroll
      for (int k = 0; k < kDepth; k += kWidth) {
        Vector<T, kWidth> wv;
        if constexpr (kAlongK) {
          wv = load_vector<kWidth>(of_w + lane * kPitch + k);
        } else {
#pragma unroll
          for (int i = 0; i < kWidth; ++i) wv[i] = of_w[(k + i) * 32 + lane];
        }
#pragma unroll
        for (int j = 0; j < kLines; ++j) {
          const auto xv = load_vector<kWidth>(of_x + j * kDepth + k);
#pragma unroll
          for (int i = 0; i < kWidth; ++i) gemv::add<kExact>(sums[j], off[j], xv[i], wv[i]);
        }
      }
    };
    if (std::is_same_v<T, float> && args.simt.exact && p.k <= gemv::kExact)
      multiply.template operator()<std::is_same_v<T, float>>();
    else
      multiply.template operator()<false>();
    const std::int64_t chunk = now.chunk;
    advance(now);
    if (now.chunk == chunk) continue;
#pragma unroll
    for (int j = 0; j < kLines; ++j) {
      if (args.simt.splits == 1) {
        chunk_sums[(chunk * kLines + j) * 32 + lane] = sums[j];
      } else if (j < x_lines && lane < lines_here) {
        const auto partial = [&](std::int64_t plane) -> T& {
          return static_cast<T*>(args.simt.partial)[(plane * p.batches + batch) * p.m * p.n + offset(j)];
        };
        partial(chunk) = sums[j];
        if (args.simt.exact) partial(args.simt.chunks + chunk) = off[j], off[j] = 0;
      }
      sums[j] = 0;
    }
  }
  if (args.simt.splits > 1) return;
#pragma unroll
  for (int j = 0; j < kLines; ++j) warp_offs[(warp * kLines + j) * 32 + lane] = off[j];
  __syncthreads();
  const Epilogue<T, T> epilogue = make_epilogue<T, T>(p, batch);
  T* const out = static_cast<T*>(p.out) + batch * p.m * p.n;
  for (int j = warp; j < x_lines; j += gemv::kWarps) {
    if (lane >= lines_here) continue;
    T total = chunk_sums[j * 32 + lane];
    if constexpr (std::is_same_v<T, float>) {
      if (args.simt.exact) {
        Compensated sum{total, 0};
        for (std::int64_t chunk = 1; chunk < end; ++chunk) sum.add({chunk_sums[(chunk * kLines + j) * 32 + lane], 0});
        for (int w = 0; w < gemv::kWarps; ++w) sum.off += warp_offs[(w * kLines + j) * 32 + lane];
        total = sum.value();
      }
    }
    for (std::int64_t chunk = 1; chunk < end && !args.simt.exact; ++chunk) total += chunk_sums[(chunk * kLines + j) * 32 + lane];
    const T x = args.stream_b ? epilogue.exact(total, j, line) : epilogue.exact(total, line, j);
    out[offset(j)] = x;
  }
}

}  // namespace xgemm::matmul
