// Adds the sums of a tile's splits of K in order: through distributed shared memory if a cluster has one CTA per split (no
// round trip through L2: few rows), else through memory (split_k/in_memory.cuh). (Terms: wgmma/arguments.cuh.)
#pragma once
#include "device/ptx/cluster.cuh"
#include "device/ptx/warpgroup.cuh"
#include "matmul/epilogue/store_rows.cuh"
#include "matmul/split_k/in_memory.cuh"
#include "matmul/wgmma/cta.cuh"

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
template <class Out, WgmmaConfig kConfig>
__device__ __forceinline__ void reduce_in_cluster(const float (&sums)[kConfig.tile_n / 2], const WgmmaArguments& g,
                                                  const Tile& tile, int split, int thread, const Shared<kConfig>& shared,
                                                  unsigned parity) {
  const auto [row, column, batch] = tile;
  ptx::Barrier *const arrived = shared.arrived, *const merged = shared.merged;
  constexpr int kWarps = 4 * kConfig.consumers(), kStep = 32 * kWarps;
  float4* const partials = reinterpret_cast<float4*>(shared.slots);  // [split][own slice][warp][lane]
  const int lane = thread % 32, warp = thread / 32;
  const int warps = min(kWarps, (static_cast<int>(g.problem.m) - row + 15) / 16);  // with rows of C
  const int slices = (g.tiles.width + 7) / 8, each = (slices + g.k.cluster_splits - 1) / g.k.cluster_splits, first = split * each;
  const int own = max(0, min(each, slices - first));
  if (thread == 0) ptx::barrier_arrive_expect(arrived, static_cast<unsigned>(g.k.cluster_splits * own * warps) * 512);
  sync_cluster();  // every CTA's slots are free
  if (warp < warps) {
    int owner = 0, at = 0;
#pragma unroll
    for (int j = 0; j < kConfig.tile_n / 8; ++j) {
      if (j >= slices) break;
      const float4 four{sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
      ptx::store_async(partials + (split * each + at) * kStep + thread, four, arrived, static_cast<unsigned>(owner));
      if (++at == each) at = 0, ++owner;
    }
  }
  const auto epilogue = make_epilogue<Out, float>(g.problem, batch);
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
    store_rows<Out, kConfig.scaled, 2, 8>(g, epilogue, r, min(2, (static_cast<int>(g.problem.m) - r + 7) / 8),
                                          column + 8 * (first + at), columns, column + g.tiles.width, batch, [&](int h) {
                                            return h == 0 ? Vector<float, 2>{{sum.x, sum.y}} : Vector<float, 2>{{sum.z, sum.w}};
                                          });
  }
  ptx::fence_async_shared();  // the next loads overwrite what was read and written here
  __syncwarp();
  if (lane == 0) ptx::barrier_arrive(merged);
}

/// Every consumer thread calls it with its sums of a split of tile `index`; the CTAs of a tile that have no other item after it
/// (`stays`) wait for each other and add a share of the tile each.
template <class Out, WgmmaConfig kConfig>
__device__ __forceinline__ void reduce_in_memory(const float (&sums)[kConfig.tile_n / 2], const WgmmaArguments& g,
                                                 const Tile& tile, int index, int split, bool stays, int thread,
                                                 MeetingShare* share) {
  constexpr int kThreads = 128 * kConfig.consumers(), kSlices = kConfig.tile_n / 8, kSplit = kSlices * kThreads;
  constexpr int kRounds = (kSlices + 7) / 8, kDeep = kSlices <= 8 ? 16 : 8;  // wider: no registers
  const Problem& p = g.problem;
  const int rows = min(kThreads / 2, static_cast<int>(p.m) - tile.row),
            columns = min(g.tiles.width, static_cast<int>(p.n) - tile.column);
  // In the accumulators' layout, whole cache lines per warp: [split][eight columns][thread], a float4 each.
  float4* const partials = reinterpret_cast<float4*>(g.partials) + static_cast<std::int64_t>(index) * g.memory_splits * kSplit;
  if (thread / 32 * 16 < rows) {
#pragma unroll
    for (int j = 0; j < kSlices; ++j)
      partials[split * kSplit + j * kThreads + thread] = {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
  }
  const auto epilogue = make_epilogue<Out, float>(p, tile.batch);
  Out* const out = static_cast<Out*>(p.out) + static_cast<std::int64_t>(tile.batch) * p.m * p.n;
  // A warp's 32 units are two rows, eight apart, by 64 columns.
  const auto slice_of = [](int unit) { return unit / 32 % kRounds * 8 + unit % 32 / 4; };
  const auto row_of = [](int unit) { return unit / (32 * kRounds) / 8 * 16 + unit / (32 * kRounds) % 8; };
  add_splits<kThreads, 1, kDeep>(
      g.meetings[index], g.memory_splits, stays, share, thread, 32 * kRounds * 8 * ((rows + 15) / 16),
      [] { ptx::named_barrier_sync(kSplitBarrier, kThreads); },
      [&](int unit) -> const float* {
        const int slice = slice_of(unit), row = row_of(unit);
        if (8 * slice >= columns || row >= rows) return nullptr;
        return reinterpret_cast<const float*>(partials + slice * kThreads + row / 16 * 32 + row % 8 * 4 + unit % 4);
      },
      [](int from) { return from * (4 * kSplit); },
      [&](int unit, const Quad<float>& sum, bool) {
        // A lane has two columns of two rows. Neighbours exchange them: an even lane gets four columns of the upper row.
        const bool odd = unit % 2 != 0;
        const float first = __shfl_xor_sync(kFullWarp, odd ? sum.v[0] : sum.v[2], 1),
                    second = __shfl_xor_sync(kFullWarp, odd ? sum.v[1] : sum.v[3], 1);
        const Quad<float> four =
            odd ? Quad<float>{{first, second, sum.v[2], sum.v[3]}} : Quad<float>{{sum.v[0], sum.v[1], first, second}};
        const int row = row_of(unit) + 8 * odd, column = 8 * slice_of(unit) + unit % 4 / 2 * 4, left = columns - column;
        if (row >= rows || left <= 0) return;
        store_sums(epilogue, out, p.n, four, tile.row + row, tile.column + column, left);
      });
}

}  // namespace xgemm::matmul::wgmma_detail
