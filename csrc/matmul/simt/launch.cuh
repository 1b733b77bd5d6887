// Host side of simt/kernel.cuh and gemv/gemv.cuh: grid and shared memory.
#pragma once
#include <algorithm>
#include <climits>

#include "device/launch.h"
#include "matmul/dispatch.h"
#include "matmul/gemv/gemv.cuh"
#include "matmul/launch.h"
#include "matmul/simt/kernel.cuh"

namespace xgemm::matmul {

/// Blocks of a grid. A launch of 2^31 and more fails; so does one that would wrap round.
constexpr unsigned grid_of(std::int64_t blocks) { return static_cast<unsigned>(std::min<std::int64_t>(blocks, UINT_MAX)); }
static_assert(grid_of(7) == 7 && grid_of((std::int64_t{1} << 32) + 7) > INT_MAX);

template <class T, SimtTile kSimtTile, bool kVector, Along kAlongA = Along::runtime, Along kAlongB = Along::runtime>
void launch_tile(const SimtArguments& args, cudaStream_t stream) {
  constexpr SimtShape kTile = shape(kSimtTile);
  const Problem& p = args.problem;
  const std::int64_t tiles = (p.m + kTile.bm - 1) / kTile.bm * ((p.n + kTile.bn - 1) / kTile.bn);
  const unsigned blocks = grid_of(tiles * p.batches * args.splits);
  constexpr int kShared = kTile.shared_bytes(sizeof(T));
  constexpr auto kGemm = simt_gemm<T, kSimtTile, kVector, kAlongA, kAlongB>;
  if constexpr (kShared > 48 * 1024) allow_shared<kGemm, kShared>();
  kGemm<<<blocks, kTile.threads(), kShared, stream>>>(args);
}

template <class T, int kLines, bool kAlongK>
void launch_gemv(const GemvArguments& args, cudaStream_t stream) {
  const Problem& p = args.simt.problem;
  const std::int64_t tiles = ((args.stream_b ? p.n : p.m) + 31) / 32;
  constexpr int kShared = gemv::kSharedBytes<T, kLines>;
  constexpr auto kGemv = gemv_kernel<T, kLines, kAlongK>;
  if constexpr (kShared > 48 * 1024) allow_shared<kGemv, kShared>();
  kGemv<<<grid_of(tiles * p.batches * args.simt.splits), gemv::kThreads, kShared, stream>>>(args);
}

inline SimtArguments simt_arguments(const Problem& p, const auto& plan, void* workspace) {
  return {.problem = p,
          .a = {p.a.row_stride, p.a.col_stride, a_along_k(p)},
          .b = {p.b.col_stride, p.b.row_stride, b_along_k(p)},
          .chunk = plan.chunk,
          .chunks = plan.chunks,
          .splits = plan.splits,
          .partial = workspace};
}

template <class T>
void launch_finish(const SimtArguments& args, cudaStream_t stream) {
  const Problem& p = args.problem;
  if (args.splits == 1) return;
  const std::int64_t count = p.batches * p.m * p.n, blocks = (count + 255) / 256;
  simt_finish<T><<<static_cast<unsigned>(blocks < 65536 ? blocks : 65536), 256, 0, stream>>>(args);
}

template <class T>
void launch_sum_splits(const Problem& p, std::int64_t splits, float* sums, cudaStream_t stream) {
  launch_finish<T>({.problem = p, .chunks = splits, .splits = splits, .partial = sums}, stream);
}

template <class T>
void launch_simt(const Problem& p, const SimtPlan& plan, void* workspace, cudaStream_t stream, const FailedPairs& only) {
  constexpr DType kType = sizeof(T) == 8 ? DType::f64 : DType::f32;
  SimtArguments args = simt_arguments(p, plan, workspace);
  args.only = only;
  // The plan was made for the first address: the host's loop over further batch dims (run.cpp) may have added odd offsets.
  const bool vector = plan.vector && has_vectors(p, lines_of_a(p), 4) && has_vectors(p, lines_of_b(p), 4);
  dispatch_tile<kSimtTiles.size()>(has_instance(plan.tile, kType) ? plan.tile : SimtTile::t64x64, [&]<SimtTile kTile>() {
    if constexpr (has_instance(kTile, kType)) {
      if (!vector) return launch_tile<T, kTile, false>(args, stream);
      if constexpr (kTile == SimtTile::t128x128)  // an instantiation for each pair of layouts
        dispatch_flags(args.a.along_k, args.b.along_k, [&]<bool kAlongKA, bool kAlongKB>() {
          launch_tile<T, kTile, true, kAlongKA ? Along::k : Along::lines, kAlongKB ? Along::k : Along::lines>(args, stream);
        });
      else
        launch_tile<T, kTile, true>(args, stream);
    }
  });
  launch_finish<T>(args, stream);
}

template <class T>
void launch_gemv(const Problem& p, const GemvPlan& plan, void* workspace, cudaStream_t stream) {
  SimtArguments simt = simt_arguments(p, plan, workspace);
  simt.exact = gemv_is_exact(p);
  const bool stream_b = p.m <= p.n, a_vectors = has_vectors(p, lines_of_a(p), 4), b_vectors = has_vectors(p, lines_of_b(p), 4);
  // x is always laid out along k; its pieces are vectors only if they run that way in memory.
  const GemvArguments args{.simt = simt,
                           .stream_b = stream_b,
                           .x_vectors = stream_b ? a_vectors && simt.a.along_k : b_vectors && simt.b.along_k,
                           .w_vectors = stream_b ? b_vectors : a_vectors};
  dispatch_flags(std::min(p.m, p.n) == 1, stream_b ? simt.b.along_k : simt.a.along_k,
                 [&]<bool kOne, bool kAlongK>() { launch_gemv<T, kOne ? 1 : 4, kAlongK>(args, stream); });
  launch_finish<T>(simt, stream);
}

}  // namespace xgemm::matmul
