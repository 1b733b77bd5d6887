// bf16x3 as the last launch of a product in fp16 parts (fp16_split/split.cuh): computes the elements that fp16 parts cannot
// represent.
//
//   Tiles     A CTA takes those of every gridDim.x-th tile that have a pair of lines (a row of A, a column of B) that fp16
//             parts cannot represent, and writes only such elements. If all rows of A or all columns of B failed, the product
//             in fp16 parts has written nothing, and this kernel writes all elements.
//   Lifts     Rows and columns of small numbers are multiplied by a power of two before they are split. Then only lines that
//             span more than about 100 binary orders of magnitude have numbers that three bf16 parts cannot represent.
#pragma once
#include "matmul/bf16x3/fragments.cuh"
#include "matmul/bf16x3/scheduler.cuh"
#include "matmul/epilogue/apply.cuh"

namespace xgemm::matmul::bf16x3 {

/// Where a batch's statistics of A's rows begin, and those of B's columns.
__device__ __forceinline__ const LineStats* stats_a(const Bf16x3Arguments& g, int batch) {
  return g.fallback.a + static_cast<std::int64_t>(batch) * g.fallback.batch_step_a * g.problem.m;
}
__device__ __forceinline__ const LineStats* stats_b(const Bf16x3Arguments& g, int batch) {
  return g.fallback.b + static_cast<std::int64_t>(batch) * g.fallback.batch_step_b * g.problem.n;
}

/// Called by one warp. Do even the worst of the tile's lines pair well?
__device__ __forceinline__ bool tile_is_well(const Bf16x3Arguments& g, unsigned tile) {
  const Problem& p = g.problem;
  const auto at = tile_origin(g, tile);
  const auto worst = [&](const LineStats* stats, auto lines, int left) {
    LineQuality all{1 << 14, 1 << 14};
#pragma unroll
    for (int i = 0; i < lines() / kWarpSize; ++i) {
      const int line = min(static_cast<int>(threadIdx.x) % kWarpSize + i * kWarpSize, left - 1);
      const LineQuality mine = line_quality(stats[line], p.k);
      all = {min(all.density, mine.density), min(all.filled, mine.filled)};
    }
    return LineQuality{__reduce_min_sync(kFullWarp, all.density), __reduce_min_sync(kFullWarp, all.filled)};
  };
  return pairs_well(
      worst(stats_a(g, at.batch) + at.row, std::integral_constant<int, kRows>{}, static_cast<int>(p.m) - at.row),
      worst(stats_b(g, at.batch) + at.column, std::integral_constant<int, kColumns>{}, static_cast<int>(p.n) - at.column));
}

/// Lists the CTA's tiles. False: none.
__device__ __forceinline__ bool list_tiles(const Bf16x3Arguments& g, Fallback& fallback) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const uint4 counts = __ldcg(reinterpret_cast<const uint4*>(g.failed.lines));  // FailedLines
  const FailedLines prepared = g.prepared ? *g.prepared : FailedLines{};
  // The last CTA clears the counts after all CTAs have read them.
  const auto leave = [&] {
    if (counts.w != 0 && (atomicAdd(&g.failed.lines->state, 1u) & 0xffffu) == gridDim.x - 1)
      *reinterpret_cast<uint4*>(g.failed.lines) = {0, 0, 0, 0};
  };
  const unsigned a = counts.w >> FailedLines::kLevelsOfA & 7, b = (counts.w | prepared.state) >> FailedLines::kLevelsOfB & 7;
  if (((a | b) & 2) == 0 || ((a & 1) | (b & 4)) == 0 || ((a & 4) | (b & 1)) == 0) {  // all lines pair well
    __syncthreads();
    if (threadIdx.x == 0) leave();
    return false;
  }
  const bool all = counts.x == g.failed.lines_a || counts.y == g.failed.lines_b;
  unsigned tiles = 0;
  int turn = 0;
#pragma unroll 1
  for (unsigned first = blockIdx.x; first < g.all_units; first += kWarps * gridDim.x, turn ^= 1) {
    const unsigned tile = first + static_cast<unsigned>(warp) * gridDim.x;
    const bool mine = tile < g.all_units && (!tile_is_well(g, tile) || all);
    if (threadIdx.x % kWarpSize == 0) fallback.answers[turn][warp] = mine;
    __syncthreads();
    const auto answers = load_vector<2>(reinterpret_cast<const std::uint64_t*>(fallback.answers[turn]));
    const std::uint64_t before = (std::uint64_t{1} << warp % 8 * 8) - 1;  // the lower warps' answers
    const int at = warp < 8 ? __popcll(answers[0] & before) : __popcll(answers[0]) + __popcll(answers[1] & before);
    if (mine && threadIdx.x % kWarpSize == 0) g.list[(tiles + static_cast<unsigned>(at)) * gridDim.x + blockIdx.x] = tile;
    tiles += static_cast<unsigned>(__popcll(answers[0]) + __popcll(answers[1]));
  }
  if (threadIdx.x == 0) {
    fallback.tiles = tiles, fallback.all = all, fallback.lifts_any = counts.z > 0 || prepared.low > 0;
    leave();
  }
  __syncthreads();
  return tiles > 0;
}

/// Exponents, one byte each, that lift the tile's four rows of A from `row` on.
__device__ __forceinline__ std::uint32_t row_lifts(const Bf16x3Arguments& g, const TileOrigin& at, int row, int m) {
  const LineStats* const stats = stats_a(g, at.batch);
  std::uint32_t lifts = 0;
#pragma unroll
  for (int x = 0; x < 4; ++x)
    lifts |= static_cast<unsigned>(lift_exponent(stats[min(at.row + row + x, m - 1)].max_bits)) << 8 * x;
  return lifts;
}

/// Lifts a unit of four rows by four of k (`v`: along k, or its transpose).
__device__ __forceinline__ void lift_unit(Vector<float, 4> (&v)[4], auto along_k, std::uint32_t lifts) {
#pragma unroll
  for (int x = 0; x < 4; ++x)
#pragma unroll
    for (int y = 0; y < 4; ++y) (along_k ? v[x][y] : v[y][x]) *= power_of_two(static_cast<int>(lifts >> 8 * x & 255));
}

/// Finds biased exponents that lift the 64 columns of B of consumer warpgroup `consumer`.
template <Bf16x3Config kConfig>
__device__ __forceinline__ void find_column_lifts(const Bf16x3Arguments& g, unsigned char* lifts, const Scheduler<kConfig>& work,
                                                  int consumer, int n) {
  const FragmentPlace<kConfig> place;
  const auto at = work.origin();
  const LineStats* const stats = stats_b(g, at.batch);
  __syncwarp();
  if (place.quad == 0) {
#pragma unroll
    for (const int line : {place.first, place.second})
      lifts[line] = static_cast<unsigned char>(127 + lift_exponent(stats[min(at.column + consumer * 64 + line, n - 1)].max_bits));
  }
  __syncwarp();
}

/// Sets `lost` if a sum is infinite or NaN although neither its row nor its column is. `rows`: of the tile.
template <Bf16x3Config kConfig>
__device__ __forceinline__ void find_overflow(const float (&sums)[kRows / 2], const Bf16x3Arguments& g,
                                              const FragmentPlace<kConfig>& place, const TileOrigin& at, int column0, int rows,
                                              int n, std::uint32_t& lost) {
  const LineStats *const of_a = stats_a(g, at.batch) + at.row, *const of_b = stats_b(g, at.batch);
  const bool special[2] = {of_b[min(column0 + place.first, n - 1)].max_bits >= kInfinityBits,
                           of_b[min(column0 + place.second, n - 1)].max_bits >= kInfinityBits};
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const bool row_special = of_a[min(8 * j + 2 * place.quad + c, rows - 1)].max_bits >= kInfinityBits;
#pragma unroll
      for (int h = 0; h < 2; ++h)
        if (!row_special && !special[h] && !(fabsf(sums[4 * j + 2 * h + c]) < INFINITY)) lost = 1;
    }
}

/// Undoes the lifts of rows and columns in the sums.
template <Bf16x3Config kConfig>
__device__ __forceinline__ void undo_lifts(float (&sums)[kRows / 2], const Bf16x3Arguments& g, const unsigned char* lifts,
                                           const FragmentPlace<kConfig>& place, const TileOrigin& at, int rows) {
  const LineStats* const stats = stats_a(g, at.batch) + at.row;
  const int low[2] = {lifts[place.first], lifts[place.second]};
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int lift = lift_exponent(stats[min(8 * j + 2 * place.quad + c, rows - 1)].max_bits) - 127;
#pragma unroll
      for (int h = 0; h < 2; ++h) sums[4 * j + 2 * h + c] = unscale(sums[4 * j + 2 * h + c], -(lift + low[h]));
    }
}

}  // namespace xgemm::matmul::bf16x3
