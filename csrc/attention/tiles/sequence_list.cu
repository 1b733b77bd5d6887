// Lists the tiles of all sequences, in an order in which CTAs that take them in turn end together.
//
//   CTA        one. A thread reads a sequence's lengths; then each warp writes the items of one sequence after another.
//   Order      sequences with the most keys first; of a sequence the last tile of rows first, as its keys may reach furthest, and
//              a tile's splits side by side. Tiles of one sequence follow each other, so that they share keys in L2.
//   Splits     schedule.splits in all beside the tiles, so a split's length depends on all sequences.
//   End        behind all entries, an item whose `sequence` is the number of those that exist.
//   Floor      latency: three passes over the lengths.
#include "attention/tiles/instances.h"
#include "attention/tiles/sequences.cuh"
#include "device/launch.h"
#include "device/ptx/grid.cuh"

namespace xgemm::attention {

inline constexpr int kListThreads = 1024;

/// A sum over the CTA, in all threads. `memory`: of a number per warp.
__device__ __forceinline__ unsigned long long sum_of_cta(unsigned long long x, unsigned long long* memory) {
  x = warp_reduce(x, [](unsigned long long a, unsigned long long b) { return a + b; });
  if (threadIdx.x % kWarpSize == 0) memory[threadIdx.x / kWarpSize] = x;
  __syncthreads();
  x = memory[threadIdx.x % kWarpSize];
  return warp_reduce(x, [](unsigned long long a, unsigned long long b) { return a + b; });
}

__global__ void __launch_bounds__(kListThreads)
    list_sequences(const __grid_constant__ WithSequences<TileArguments> g, SequenceItem* __restrict__ list) {
  static_assert(kListThreads == kWarpSize * kWarpSize);
  __shared__ SequenceItem items[kListThreads];  // of the sequences that are being listed; `split`: where they go
  __shared__ unsigned places[kListThreads];     // of the sequences of each length, longest first
  __shared__ unsigned long long sums[kWarpSize];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpSize, warp = thread / kWarpSize;
  const int count = g.sequences.count;
  places[thread] = 0;
  __syncthreads();
  ptx::grid_release();
  ptx::grid_wait();

  // A sequence's last tile of rows, and the tiles of keys that it sees. Tiles of rows in all: `row` / tile_rows + 1.
  int tiles = 0;
  const auto describe = [&](int i) {
    SequenceItem item{};
    if (i < count) item = describe_sequence(g.sequences, i);
    const int rows = item.sq * static_cast<int>(g.pack.divisor);
    item.row = rows == 0 ? -g.tile_rows : (rows - 1) / g.tile_rows * g.tile_rows;
    tiles = rows == 0 ? 0 : visited_tiles(g, item);
    return item;
  };
  unsigned long long work = 0;
  for (int i = thread; i < count; i += kListThreads) {
    const SequenceItem item = describe(i);
    work += static_cast<unsigned long long>(item.row / g.tile_rows + 1) * static_cast<unsigned>(tiles);
  }
  int split = 0;  // tiles of keys
  if (g.schedule.least_tiles > 0) {
    const auto fair = (sum_of_cta(work, sums) + g.schedule.splits - 1) / g.schedule.splits;
    split = max(g.schedule.least_tiles, static_cast<int>(fair));
  }
  int shift = 0;  // to the index in `places`
  while ((g.schedule.tile_keys.divide(g.sequences.max_k) >> shift) >= kListThreads) ++shift;
  const auto splits_of = [&] { return split > 0 ? max(1, (tiles + split - 1) / split) : 1; };
  const auto place_of = [&] { return places + (kListThreads - 1 - (tiles >> shift)); };

  for (int i = thread; i < count; i += kListThreads) {
    const SequenceItem item = describe(i);
    atomicAdd(place_of(), static_cast<unsigned>((item.row / g.tile_rows + 1) * splits_of()));
  }
  __syncthreads();
  unsigned before = places[thread];  // becomes the sum of the places up to this thread's
  for (int offset = 1; offset < kWarpSize; offset *= 2) {
    const unsigned other = __shfl_up_sync(kFullWarp, before, offset);
    if (lane >= offset) before += other;
  }
  __syncthreads();  // all have read `sums`
  if (lane == kWarpSize - 1) sums[warp] = before;
  __syncthreads();
  const auto earlier =
      warp_reduce(lane < warp ? static_cast<unsigned>(sums[lane]) : 0u, [](unsigned a, unsigned b) { return a + b; });
  const auto all = warp_reduce(static_cast<unsigned>(sums[lane]), [](unsigned a, unsigned b) { return a + b; });
  places[thread] = earlier + before - places[thread];
  __syncthreads();

  for (int first = 0; first < count; first += kListThreads) {
    SequenceItem item = describe(first + thread);
    item.splits = splits_of();
    if (item.sq > 0)
      item.split = static_cast<int>(atomicAdd(place_of(), static_cast<unsigned>((item.row / g.tile_rows + 1) * item.splits)));
    items[thread] = item;
    __syncthreads();
    for (int i = warp; i < min(kListThreads, count - first); i += kWarpSize) {
      SequenceItem of_tile = items[i];
      const int place = of_tile.split, of_all = (of_tile.row / g.tile_rows + 1) * of_tile.splits, last_row = of_tile.row;
      for (int n = lane; n < of_all; n += kWarpSize) {
        const int from_last = n / of_tile.splits;
        of_tile.split = n - from_last * of_tile.splits, of_tile.row = last_row - from_last * g.tile_rows;
        if (place + n < g.schedule.entries) list[place + n] = of_tile;
      }
    }
    __syncthreads();
  }
  const int listed = static_cast<int>(min(all, static_cast<unsigned>(g.schedule.entries)));
  for (int i = listed + thread; i < g.schedule.entries; i += kListThreads) list[i] = {};
  if (thread == 0) list[g.schedule.entries] = {.sequence = listed};
}

void launch_sequence_list(const WithSequences<TileArguments>& arguments, SequenceItem* list, cudaStream_t stream) {
  enqueue(list_sequences, {.blocks = 1, .threads = kListThreads, .early = true}, stream, arguments, list);
}

}  // namespace xgemm::attention
