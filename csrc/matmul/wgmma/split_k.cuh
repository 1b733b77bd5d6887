// Adds the sums of a tile's splits of K in order, and stores the total by store_rows: through distributed shared memory if a
// cluster has one CTA per split, through global memory if each split is a work item. (Terms: wgmma/arguments.cuh.)
#pragma once
#include "device/ptx/cluster_exchange.cuh"
#include "device/ptx/warpgroup.cuh"
#include "matmul/epilogue/store_rows.cuh"
#include "matmul/split_k/meeting.cuh"
#include "matmul/wgmma/schedule.cuh"

namespace xgemm::matmul::wgmma_detail {

/// Cluster barrier for warps at different places in the code; each warp arrives as a whole. It makes no writes visible.
__device__ __forceinline__ void sync_cluster() {
  __syncwarp();
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
}

/// Every consumer thread of every CTA of the cluster calls it with its sums when no load is in flight to this CTA's slots; the
/// producer's warps match its cluster barrier. The CTAs share the tile's columns, eight at a time (a slice). Sums go to the CTA
/// that owns their slice by stores that count on its `arrived`, because a cluster barrier's release would wait for all memory.
/// `parity`: of this CTA's calls. Arrives at `merged` when the slots may be loaded again.
template <class Out, class Config>
__device__ __forceinline__ void reduce_in_cluster(const float (&sums)[Config::kValue.tile_n / 2], const WgmmaArguments& g,
                                                  const Tile& tile, int split, int thread, unsigned char* slots,
                                                  ptx::Barrier* arrived, unsigned parity, ptx::Barrier* merged) {
  const auto [row, column, batch] = tile;
  constexpr int kWarps = 4 * Config::kValue.consumers(), kStep = 32 * kWarps;
  float4* const partials = reinterpret_cast<float4*>(slots);  // [split][own slice][warp][lane]
  const int lane = thread % 32, warp = thread / 32;
  const int warps = min(kWarps, (static_cast<int>(g.problem.m) - row + 15) / 16);  // with rows of C
  const int slices = (g.tiles.width + 7) / 8, each = (slices + g.k.cluster_splits - 1) / g.k.cluster_splits, first = split * each;
  const int own = max(0, min(each, slices - first));
  if (thread == 0) ptx::barrier_arrive_expect(arrived, static_cast<unsigned>(g.k.cluster_splits * own * warps) * 512);
  sync_cluster();  // every CTA's slots are free
  if (warp < warps) {
    int owner = 0, at = 0;
#pragma unroll
    for (int j = 0; j < Config::kValue.tile_n / 8; ++j) {
      if (j >= slices) break;
      const float4 four{sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
      ptx::store_async(partials + (split * each + at) * kStep + thread, four, arrived, static_cast<unsigned>(owner));
      if (++at == each) at = 0, ++owner;
    }
  }
  const auto epilogue = tile_epilogue<Out>(g.problem, batch);
  ptx::barrier_wait(arrived, parity);
  const LaneColumns columns(g.problem, lane % 4, std::true_type{});
#pragma unroll 1
  for (int unit = warp; unit < own * warps; unit += kWarps) {
    const int at = unit / warps, of = unit - at * warps, r = row + 16 * of + lane / 4;  // this lane's rows are r, r + 8
    const float4* const in = partials + at * kStep + 32 * of + lane;
    float4 sum = *in;
#pragma unroll 1
    for (int s = 1; s < g.k.cluster_splits; ++s) {
      const float4 x = in[s * each * kStep];
      sum = {sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w};
    }
    store_rows<Out, Config::kValue.scaled, 2, 8>(
        g, epilogue, r, min(2, (static_cast<int>(g.problem.m) - r + 7) / 8), column + 8 * (first + at), columns,
        column + g.tiles.width, batch,
        [&](int h) { return h == 0 ? Vector<float, 2>{{sum.x, sum.y}} : Vector<float, 2>{{sum.z, sum.w}}; });
  }
  ptx::fence_async_shared();  // the next loads overwrite what was read and written here
  __syncwarp();
  if (lane == 0) ptx::barrier_arrive(merged);
}

/// Adds kSplits splits' sums from `in` on, kSplitStep apart (kTail: `left` of them, if fewer), to a lane's four; all loads are
/// issued first.
template <int kSplits, int kSplitStep, bool kTail>
__device__ __forceinline__ void add_splits(float4& sum, const float4* in, int left, bool from_zero) {
  float4 split[kSplits];
#pragma unroll
  for (int s = 0; s < kSplits; ++s) split[s] = __ldcg(in + (kTail ? min(s, left - 1) : s) * kSplitStep);
#pragma unroll
  for (int s = 0; s < kSplits; ++s) {
    if (kTail && s >= left) break;
    if (s == 0 && from_zero)
      sum = split[s];
    else
      sum = {sum.x + split[s].x, sum.y + split[s].y, sum.z + split[s].z, sum.w + split[s].w};
  }
}

/// Every consumer thread calls it with its sums of `item`, a split of a tile; the CTAs of a tile that have no other item
/// after it (`stays`) wait for each other and add a share of the tile each.
template <class Out, class Config>
__device__ __forceinline__ void reduce_in_memory(const float (&sums)[Config::kValue.tile_n / 2], const WgmmaArguments& g,
                                                 const Tile& tile, const Item& item, bool stays, int thread,
                                                 MeetingShare* share) {
  const auto [row, column, batch] = tile;
  const int index = item.tile, split = item.split;
  constexpr int kWarps = 4 * Config::kValue.consumers(), kStep = 32 * kWarps, kSlices = Config::kValue.tile_n / 8;
  const int rows = min(16 * kWarps, static_cast<int>(g.problem.m) - row), lane = thread % 32, warp = thread / 32;
  // In the accumulators' layout, whole cache lines per warp: [split][slice][warp][lane]
  float4* const partials =
      reinterpret_cast<float4*>(g.partials) + static_cast<std::int64_t>(index) * g.memory_splits * (kSlices * kStep);
  if (16 * warp < rows) {
#pragma unroll
    for (int j = 0; j < kSlices; ++j)
      partials[(split * kSlices + j) * kStep + thread] = {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
  }
  ptx::named_barrier_sync(kSplitBarrier, 32 * kWarps);
  if (thread == 0) *share = meet(g.meetings[index], static_cast<unsigned>(g.memory_splits), stays);
  ptx::named_barrier_sync(kSplitBarrier, 32 * kWarps);
  const int of = static_cast<int>(share->of), my_rank = static_cast<int>(share->rank);
  if (of > 0) {
    // Units of two rows, eight apart, by 64 columns, two columns per lane.
    constexpr int kRounds = (kSlices + 7) / 8;
    const int units = kRounds * 8 * ((rows + 15) / 16);
    const LaneColumns columns(g.problem, lane);
    const auto epilogue = tile_epilogue<Out>(g.problem, batch);
#pragma unroll 1
    for (int unit = warp * of + my_rank; unit < units; unit += kWarps * of) {
      const int round = unit % kRounds, pair = unit / kRounds, r0 = pair / 8 * 16 + pair % 8;
      if (column + 64 * round >= g.problem.n || r0 >= rows) continue;
      const float4* const in =
          partials + min(8 * round + lane / 4, kSlices - 1) * kStep + pair / 8 * 32 + pair % 8 * 4 + lane % 4;
      float4 four{};
      constexpr int kSplitStep = kSlices * kStep, kDeep = kSlices <= 8 ? 16 : 8;  // wider: no registers
      int done = 0;
#pragma unroll 1
      for (; done + kDeep <= g.memory_splits; done += kDeep)
        add_splits<kDeep, kSplitStep, false>(four, in + done * kSplitStep, kDeep, done == 0);
#pragma unroll 1
      for (; done < g.memory_splits; done += 4)
        add_splits<4, kSplitStep, true>(four, in + done * kSplitStep, g.memory_splits - done, done == 0);
      Vector<float, 2> sum[2]{{{four.x, four.y}}, {{four.z, four.w}}};
      if (!columns.paired) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float x[2];
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            const float even = __shfl_sync(0xffffffffu, sum[r][0], 16 * c + lane / 2),
                        odd = __shfl_sync(0xffffffffu, sum[r][1], 16 * c + lane / 2);
            x[c] = lane % 2 ? odd : even;
          }
          sum[r] = {{x[0], x[1]}};
        }
      }
      store_rows<Out, false, 2, 8>(g, epilogue, row + r0, r0 + 8 < rows ? 2 : 1, column + 64 * round, columns,
                                   column + g.tiles.width, batch, [&](int r) { return r == 0 ? sum[0] : sum[1]; });
      __syncwarp();
    }
  }
  if (thread == 0) depart(g.meetings[index], static_cast<unsigned>(g.memory_splits));
}

}  // namespace xgemm::matmul::wgmma_detail
