// Adds the sums of a tile's splits of K (fp32 in tf32), one CTA each, and stores C: the CTAs meet and share the addition.
#pragma once
#include "matmul/epilogue/quad.cuh"
#include "matmul/split_k/meeting.cuh"

namespace xgemm::matmul::mma_detail {

/// This CTA's split, blockIdx.y of gridDim.y, of tile blockIdx.x of C: kTileRows x kTileColumns from (row0, column0) on, of which
/// `rows` and `columns` are of C.
template <int kTileRows, int kTileColumns>
struct TileSplit {
  float* partials;  ///< the tile's: [split][row][column]
  Meeting& meeting;
  int row0, column0, rows, columns;

  __device__ __forceinline__ TileSplit(float* all, Meeting& of_tile, int row, int column, int rows_left, int columns_left)
      : partials(all + static_cast<std::int64_t>(blockIdx.x) * gridDim.y * (kTileRows * kTileColumns)),
        meeting(of_tile),
        row0(row),
        column0(column),
        rows(rows_left),
        columns(columns_left) {}

  /// Where this split's sum goes. Rows from `rows` on need not be stored.
  __device__ __forceinline__ float* at(int row, int column) const {
    return partials + (static_cast<int>(blockIdx.y) * kTileRows + row) * kTileColumns + column;
  }

  /// Called by all threads after they have stored their sums. A quad of a row is added by up to eight lanes of a warp, each a run
  /// of splits in order; their sums are added in pairs. How many lanes depends on the sizes alone, and so do the bits.
  template <int kThreads>
  __device__ __forceinline__ void add_and_store(const Problem& problem, unsigned batch) const {
    constexpr int kQuads = kTileColumns / 4, kStep = kTileRows * kQuads, kDeep = 8;
    __shared__ MeetingShare share;
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32),
              splits = static_cast<int>(gridDim.y);
    __syncthreads();
    if (threadIdx.x == 0) share = meet(meeting, gridDim.y, true);
    __syncthreads();
    const int of = static_cast<int>(share.of), rank = static_cast<int>(share.rank);
    const int units = min(kTileRows, rows) * kQuads;  // quads
    int lanes = 1;                                    // of a unit
    while (lanes < 8 && 2 * lanes <= splits && 2 * lanes * units <= kThreads * splits) lanes *= 2;
    const int at_once = 32 / lanes, run = (splits + lanes - 1) / lanes, first = lane / at_once * run,
              end = min(splits, first + run);
    if (of > 0) {
      const auto epilogue = make_epilogue<float, float>(problem, batch);
      float* const out = static_cast<float*>(problem.out) + static_cast<std::int64_t>(batch) * problem.m * problem.n;
#pragma unroll 1
      for (int unit = (warp * of + rank) * at_once + lane % at_once; unit - lane % at_once < units;
           unit += kThreads / lanes * of) {
        const int row = unit / kQuads, column = unit % kQuads * 4, left = unit < units ? columns - column : 0;
        const float4* const in = reinterpret_cast<const float4*>(partials) + unit;
        float sum[4]{};
#pragma unroll 1
        for (int split = first; split < end && left > 0; split += kDeep) {
          float4 parts[kDeep];  // loaded together
#pragma unroll
          for (int i = 0; i < kDeep; ++i) parts[i] = split + i < end ? __ldcg(in + (split + i) * kStep) : float4{};
#pragma unroll
          for (const float4& x : parts) sum[0] += x.x, sum[1] += x.y, sum[2] += x.z, sum[3] += x.w;
        }
#pragma unroll 1
        for (int apart = at_once; apart < 32; apart *= 2) {
#pragma unroll
          for (float& x : sum) x += __shfl_xor_sync(0xffffffffu, x, apart);
        }
        if (left <= 0 || lane >= at_once) continue;
        const Quad<float> results =
            epilogue.template quad<float>({{sum[0], sum[1], sum[2], sum[3]}}, row0 + row, column0 + column, min(4, left));
        store_row_quad(out + (row0 + row) * problem.n + column0 + column, results, left, problem.n);
      }
    }
    if (threadIdx.x == 0) depart(meeting, gridDim.y);
  }
};

}  // namespace xgemm::matmul::mma_detail
