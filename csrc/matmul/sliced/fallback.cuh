// The last launch of a product in fp16 parts (fp16_split/split.cuh): computes the elements that the parts cannot represent.
//
//   Tiles   A CTA looks at every gridDim.x-th tile and computes those that have a pair of lines (a row of A, a column of B) that
//           fp16 parts cannot represent; it writes only such elements. If all rows of A or all columns of B failed, the product in
//           fp16 parts has written nothing, and this kernel writes all elements.
//   Floor   16 bytes read by each CTA if all lines pair well.
#pragma once
#include "matmul/fp16_split/failed.h"
#include "matmul/fp16_split/line_scale.cuh"
#include "matmul/sliced/kernel.cuh"

namespace xgemm::matmul {

struct FallbackArguments {
  SlicedArguments product;
  FailedPairs lines;
  FailedProduct counts;
  const FailedLines* prepared;  ///< of a prepared B, or null
};

namespace sliced {

/// Where a batch's statistics of A's rows begin, and those of B's columns.
__device__ __forceinline__ const LineStats* stats_a(const FallbackArguments& g, unsigned batch) {
  return g.lines.a + static_cast<std::int64_t>(batch) * g.lines.batch_step_a * g.product.problem.m;
}
__device__ __forceinline__ const LineStats* stats_b(const FallbackArguments& g, unsigned batch) {
  return g.lines.b + static_cast<std::int64_t>(batch) * g.lines.batch_step_b * g.product.problem.n;
}

/// Elements of the product that are written.
struct FailedOnly {
  static constexpr bool kAll = false;
  const FallbackArguments& g;
  bool all;
  __device__ __forceinline__ bool operator()(unsigned batch, int row, int column) const {
    const std::int64_t k = g.product.problem.k;
    return all || !pairs_well(line_quality(stats_a(g, batch)[row], k), line_quality(stats_b(g, batch)[column], k));
  }
};

/// Called by one warp. Do even the worst of the tile's lines pair well?
template <SlicedTile kSliced>
__device__ __forceinline__ bool tile_is_well(const FallbackArguments& g, unsigned tile) {
  const Problem& p = g.product.problem;
  const auto at = tile_origin<kSliced>(g.product, tile);
  const auto worst = [&]<int kLines>(const LineStats* stats, int left) {
    LineQuality all{1 << 14, 1 << 14};
#pragma unroll
    for (int i = 0; i < kLines; i += kWarpSize) {
      const LineQuality mine = line_quality(stats[min(static_cast<int>(threadIdx.x) % kWarpSize + i, left - 1)], p.k);
      all = {min(all.density, mine.density), min(all.filled, mine.filled)};
    }
    return LineQuality{__reduce_min_sync(kFullWarp, all.density), __reduce_min_sync(kFullWarp, all.filled)};
  };
  constexpr TileInfo kTile = info(kSliced);
  return pairs_well(
      worst.template operator()<kTile.m>(stats_a(g, at.batch) + at.row, static_cast<int>(p.m) - at.row),
      worst.template operator()<kTile.n>(stats_b(g, at.batch) + at.column, static_cast<int>(p.n) - at.column));
}

}  // namespace sliced

template <SlicedTile kSliced, bool kAlongKA, bool kAlongKB>
__global__ void __launch_bounds__(sliced::kThreads, 1) sliced_fallback(const __grid_constant__ FallbackArguments g) {
  using namespace sliced;
  extern __shared__ __align__(16) float rings[];
  __shared__ bool fails[kWarps];
  ptx::grid_wait();
  ptx::grid_release();
  FailedLines* const lines = g.counts.lines;
  const uint4 counts = __ldcg(reinterpret_cast<const uint4*>(lines));  // FailedLines
  const unsigned state = counts.z, of_prepared = g.prepared ? g.prepared->state : 0;
  __syncthreads();
  // The last CTA clears the counts after all CTAs have read them.
  if (threadIdx.x == 0 && state != 0 && (atomicAdd(&lines->state, 1u) & 0xffffu) == gridDim.x - 1)
    *reinterpret_cast<uint4*>(lines) = {0, 0, 0, 0};
  const unsigned a = state >> FailedLines::kLevelsOfA & 7, b = (state | of_prepared) >> FailedLines::kLevelsOfB & 7;
  if (((a | b) & 2) == 0 || ((a & 1) | (b & 4)) == 0 || ((a & 4) | (b & 1)) == 0) return;  // all lines pair well

  const int warp = warp_uniform(static_cast<int>(threadIdx.x) / kWarpSize);
  const FailedOnly written{g, counts.x == g.counts.lines_a || counts.y == g.counts.lines_b};
#pragma unroll 1
  for (unsigned first = blockIdx.x; first < g.product.all_tiles; first += kWarps * gridDim.x) {
    const unsigned own = first + static_cast<unsigned>(warp) * gridDim.x;
    const bool own_fails = own < g.product.all_tiles && (written.all || !tile_is_well<kSliced>(g, own));
    if (threadIdx.x % kWarpSize == 0) fails[warp] = own_fails;
    __syncthreads();
#pragma unroll 1
    for (unsigned w = 0; w < kWarps; ++w) {
      if (!fails[w]) continue;
      compute_tile<kSliced, kAlongKA, kAlongKB>(g.product, first + w * gridDim.x, rings, written);
      __syncthreads();  // its sums have been read
    }
    __syncthreads();
  }
}

}  // namespace xgemm::matmul
