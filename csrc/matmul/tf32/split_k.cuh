// tf32: the reduction of the splits of K.
#pragma once
#include "matmul/tf32/arguments.cuh"

namespace xgemm::matmul::tf32_detail {

inline constexpr int kWarpgroupBarrier = 1;  // named barriers, one per warpgroup

/// Each CTA writes the sums of its split to memory. The last of kTf32Fan warpgroups to arrive adds their sums in order; groups
/// of those sums are added in the same way. Returns true to the warpgroup that has the total.
template <class Config>
__device__ __forceinline__ bool merge(float (&sums)[Config::kValue.y() / 2], const Tf32Arguments& g, unsigned mine, int warpgroup,
                                      int thread, unsigned* flag) {
  constexpr int kWarpgroups = Config::kValue.warpgroups(), kQuads = Config::kValue.y() / 8, kTogether = kQuads <= 8 ? 4 : 1;
  const int barrier = kWarpgroupBarrier + warpgroup;
  const unsigned first = blockIdx.x - mine;  // the tile's first CTA
  const auto partial = [&](unsigned part) {
    return g.partials + static_cast<std::size_t>((first + part) * kWarpgroups + warpgroup) * (kQuads * 512) + thread * 4;
  };
  unsigned* counters = g.counters + first * kWarpgroups + warpgroup;
#pragma unroll 1
  for (unsigned step = 1; step < g.splits; step *= kTf32Fan, counters += gridDim.x * kWarpgroups) {
    const unsigned leader = mine / (step * kTf32Fan) * (step * kTf32Fan),
                   count = min(unsigned{kTf32Fan}, (g.splits - leader + step - 1) / step);
    store_quads(partial(mine), sums);
    if (!arrives_last(counters + leader * kWarpgroups, count, flag, thread, barrier)) return false;
    mine = leader;
#pragma unroll
    for (float& sum : sums) sum = 0;
#pragma unroll 1
    for (unsigned i = 0; i < count; i += kTogether) {
      float4 values[kTogether][kQuads];
#pragma unroll
      for (int t = 0; t < kTogether; ++t) {
        const float* const from = partial(leader + min(i + t, count - 1) * step);
#pragma unroll
        for (int j = 0; j < kQuads; ++j) values[t][j] = __ldcg(reinterpret_cast<const float4*>(from + 512 * j));
      }
#pragma unroll
      for (int t = 0; t < kTogether; ++t) {
        if (i + t >= count) break;
#pragma unroll
        for (int j = 0; j < kQuads; ++j) {
          const float4& v = values[t][j];
          sums[4 * j] += v.x, sums[4 * j + 1] += v.y, sums[4 * j + 2] += v.z, sums[4 * j + 3] += v.w;
        }
      }
    }
    ptx::named_barrier_sync(barrier, 128);  // all have read the flag
  }
  return true;
}

}  // namespace xgemm::matmul::tf32_detail
