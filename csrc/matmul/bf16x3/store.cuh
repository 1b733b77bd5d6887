// bf16x3: how a consumer warpgroup's sums are stored to C, or added to those of the tile's other CTAs.
#pragma once
#include "device/ptx/warpgroup.cuh"
#include "matmul/bf16x3/fallback.cuh"
#include "matmul/bf16x3/fragments.cuh"
#include "matmul/split_k/in_memory.cuh"

namespace xgemm::matmul::bf16x3 {

/// A consumer's part of C: first row and column, and how many of them are in bounds.
struct Part {
  int batch, row, column, rows, columns;
};

/// Stores up to four neighbouring sums of a row of C; the fallback only the elements that fp16 parts cannot represent.
template <Bf16x3Config kConfig>
__device__ __forceinline__ void store_quad_of_c(const Bf16x3Arguments& g, const Fallback& fallback, const Part& part, int row,
                                                int column, const Quad<float>& sum) {
  const Problem& p = g.problem;
  const int count = part.columns - column, n = static_cast<int>(p.n);
  const auto results = finished_quad(p, g.plain, part.batch, part.row + row, part.column + column, sum, count);
  float* const to =
      static_cast<float*>(p.out) + (static_cast<std::int64_t>(part.batch) * p.m + part.row + row) * n + part.column + column;
  if constexpr (kConfig.fallback) {
    if (!fallback.all) {
      const LineQuality of_row = line_quality(stats_a(g, part.batch)[part.row + row], p.k);
      const LineStats* const columns_here = stats_b(g, part.batch) + part.column + column;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (j < count && !pairs_well(of_row, line_quality(columns_here[j], p.k))) to[j] = results.v[j];
      return;
    }
  }
  store_row_quad(to, results, count, n);
}

/// Stores kStageRows rows at a time through shared memory; to C, or if the tile is split to memory, and adds the splits.
template <Bf16x3Config kConfig>
__device__ __forceinline__ void store(const float (&total)[kRows / 2], const Bf16x3Arguments& g, const Shared& shared,
                                      const Scheduler<kConfig>& work, const Part& part, int consumer, float* stage, int barrier) {
  constexpr int kPitch = Shared::kPitch, kAlong = Shared::kAlong;
  constexpr int kQuads = kAlong / 4, kStep = 128 / kQuads;  // of a row; rows that the threads take at a time
  const FragmentPlace<kConfig> place;
  const int thread = place.warp * 32 + place.lane, along = thread % kQuads * 4, first_row = thread / kQuads;
  const bool whole = work.whole();
  // A split tile is its first CTA's last one and the others' first one.
  unsigned first_cta = 0, last_cta = 0;
  if (!whole) {
    const unsigned tile_unit = work.unit / g.units * g.units;
    first_cta = work.owner(tile_unit), last_cta = work.owner(tile_unit + g.units - 1);
  }
  const auto partial = [&](unsigned cta) {
    return g.partials + static_cast<std::size_t>((2 * cta + (cta == first_cta)) * 2 + consumer) * (kRows * kAlong);
  };
  const auto store_sum = [&](int row, int column, const Quad<float>& sum) {
    store_quad_of_c<kConfig>(g, shared.fallback, part, row, column, sum);
  };
#pragma unroll
  for (int row0 = 0; row0 < kRows; row0 += kStageRows) {
    if (row0 >= part.rows) break;
#pragma unroll
    for (int j = 0; j < kStageRows / 8; ++j) {
      const float* const x = total + row0 / 2 + 4 * j;  // columns first and second of rows 8 j + 2 quad and the next
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float* const row = stage + (8 * j + 2 * place.quad + c) * kPitch;
        if constexpr (kConfig.k_major_b) {
          row[place.first] = x[c];
          row[place.second] = x[2 + c];
        } else {
          store_vector(row + place.first, Vector<float, 2>{{x[c], x[2 + c]}});
        }
      }
    }
    ptx::named_barrier_sync(barrier, 128);
    if (along < part.columns) {
#pragma unroll 1
      for (int row = first_row; row < min(kStageRows, part.rows - row0); row += kStep) {
        const auto sum = load_quad(stage + row * kPitch + along);
        if (whole)
          store_sum(row0 + row, along, sum);
        else
          store_quad(partial(blockIdx.x) + (row0 + row) * kAlong + along, sum);
      }
    }
    ptx::named_barrier_sync(barrier, 128);
  }
  if (Scheduler<kConfig>::kWhole || whole) return;
  // A CTA with another tile does not wait, so that no CTA waits for a waiting one.
  add_splits<128, 8, 4>(
      g.meetings[2 * first_cta + consumer], static_cast<int>(last_cta - first_cta) + 1, work.last_tile(),
      &shared.shares[consumer], thread, part.rows * kQuads, [&] { ptx::named_barrier_sync(barrier, 128); },
      [&](int unit) { return unit % kQuads * 4 < part.columns ? partial(first_cta) + unit * 4 : nullptr; },
      [&](int split) { return partial(first_cta + static_cast<unsigned>(split)) - partial(first_cta); },
      [&](int unit, const Quad<float>& sum, bool mine) {
        if (mine) store_sum(unit / kQuads, unit % kQuads * 4, sum);
      });
}

}  // namespace xgemm::matmul::bf16x3
