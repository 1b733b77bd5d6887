// Softmax over a dim that is not the fastest: [outer, length, columns]. A thread keeps a cell of kCell neighbouring positions
// of 16 bytes of columns in registers; a column's cells are those of a few lanes, a block, or a cluster of up to 16 blocks.
//
// Cells are joined as a balanced tree over their number, whoever holds them: a column's bits follow from its length and dtype
// alone, not from how many columns there are beside it, nor from addresses.
// Layouts: columns have stride 1, positions and outer groups lie anywhere; output contiguous; any alignment.
// Limits: 16 blocks x 512 threads x kCell positions of 8 lanes: 8192; without clusters 2048, in pieces of 32 bytes.
// Architectures: sm_80 and later; clusters on sm_90.
// Floor: one read, one write, in pieces of 128 bytes (64 take as long). 16-bit elements stay packed, their exp is computed twice.
//   Blocks hold 32 or 64 KB, 128 KB an SM: loads are under way while other blocks compute or wait for their cluster.
#pragma once
#include "device/ptx/cluster_exchange.cuh"
#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

/// get(0) to get(n - 1) joined as a balanced tree; those from `count` on do not exist and leave the tree's result as it is.
template <int n, int kFirst = 0, class V, class Get, class F>
__device__ __forceinline__ V join_tree(int count, const V& identity, const Get& get, const F& op) {
  if constexpr (n == 1)
    return kFirst < count ? get(kFirst) : identity;
  else
    return op(join_tree<n / 2, kFirst>(count, identity, get, op), join_tree<n / 2, kFirst + n / 2>(count, identity, get, op));
}

/// The same where few are common: half of the tree is left out where nothing is in it.
template <int n, class V, class Get, class F>
__device__ __forceinline__ V join_up_to(int count, const V& identity, const Get& get, const F& op) {
  const V joined = join_tree<n / 2>(count, identity, get, op);
  return count > n / 2 ? op(joined, join_tree<n / 2, n / 2>(count, identity, get, op)) : joined;
}

/// 1 / d, as exact as results from 16 bits need it.
template <class T, class V>
__device__ __forceinline__ V reciprocal_for(V d) {
  if constexpr (sizeof(T) > 2) {
    return V{1} / d;
  } else {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
    return r;
  }
}

/// Values of neighbouring columns.
template <class V, int n>
struct alignas(16) Columns {
  V of[n];
};

/// Where the threads of a block meet: its warps' values, those that the blocks of its cluster have sent, and the columns'
/// results.
template <class V, int n>
struct Meeting {
  static constexpr int kWarps = kColumnThreads / kWarpSize, kSmallWarps = kSmallColumnThreads / kWarpSize;
  Columns<V, n> warps[kWarps][kColumnLanes], blocks[kMaxClusterBlocks][kColumnLanes], results[kSmallWarps / 2][kColumnLanes];
};

/// A thread's place: 16 bytes number `lane` of the `lanes` side by side, in a tile of `team` threads of this block.
struct Cell {
  int lanes, lane, team, cluster;
};

/// Joins a value of each cell of a column; every thread gets those of its own columns.
template <class V, int n, class F>
__device__ __forceinline__ void join_cells(V (&value)[n], V identity, const Cell& cell, Meeting<V, n>& meeting,
                                           [[maybe_unused]] ptx::Barrier* all, F op) {
#pragma unroll
  for (int offset = 1; offset < kWarpSize; offset *= 2) {
    if (offset < cell.lanes || offset >= cell.team) continue;
#pragma unroll
    for (int e = 0; e < n; ++e) value[e] = op(value[e], __shfl_xor_sync(kFullWarp, value[e], offset));
  }
  if (cell.team <= kWarpSize) return;
  using Group = Columns<V, n>;
  constexpr int kWarps = Meeting<V, n>::kWarps;
  const int thread = static_cast<int>(threadIdx.x), columns = cell.lanes * n, log2_columns = 31 - __clz(columns);
  const int warps = min(cell.team, static_cast<int>(blockDim.x)) / kWarpSize,
            teams = max(static_cast<int>(blockDim.x) / cell.team, 1);
  if (thread % kWarpSize < cell.lanes) {
    Group mine;
#pragma unroll
    for (int e = 0; e < n; ++e) mine.of[e] = value[e];
    meeting.warps[thread / kWarpSize][cell.lane] = mine;
  }
  __syncthreads();
  // A column of one of the block's tiles; or, in a cluster, of its only one, for block number `to`.
  const int joins = columns * max(teams, cell.cluster);
  for (int i = thread; i < joins; i += static_cast<int>(blockDim.x)) {
    const int column = i & (columns - 1), lane = column / n, e = column % n, to = i >> log2_columns;
    const int first = cell.cluster > 1 ? 0 : to * warps;
    const V joined = join_up_to<kWarps>(warps, identity, [&](int w) { return meeting.warps[first + w][lane].of[e]; }, op);
    if (cell.cluster == 1) meeting.results[to][lane].of[e] = joined;
#if __CUDA_ARCH__ >= 900
    else if constexpr (std::is_floating_point_v<V>)
      ptx::store_async(&meeting.blocks[ptx::cluster_rank()][lane].of[e], as_unit(joined), all, static_cast<unsigned>(to));
    else
      ptx::store_async(&meeting.blocks[ptx::cluster_rank()][lane].of[e], joined, all, static_cast<unsigned>(to));
#endif
  }
#if __CUDA_ARCH__ >= 900
  if (cell.cluster > 1 && thread < columns) {
    const int lane = thread / n, e = thread % n;
    ptx::barrier_wait(all, 0);
    meeting.results[0][lane].of[e] =
        join_up_to<kMaxClusterBlocks>(cell.cluster, identity, [&](int b) { return meeting.blocks[b][lane].of[e]; }, op);
  }
#endif
  __syncthreads();
  const Group result = meeting.results[thread / cell.team][cell.lane];
#pragma unroll
  for (int e = 0; e < n; ++e) value[e] = result.of[e];
}

/// kPlain: every vector is whole and lies at a multiple of 16 bytes in input and output. Others are shifted in registers where
/// elements have 16 bits; where they have more, a thread's columns are `lanes` apart, so that lanes side by side access
/// neighbouring elements.
template <class T, class O, bool kPlain>
__global__ void __launch_bounds__(kColumnThreads, sizeof(T) == 4 || (kPlain && sizeof(T) == 2) ? 2 : 1)
    softmax_columns(const __grid_constant__ Plan plan, const T* __restrict__ in, O* __restrict__ out) {
  using V = Value<T>;
  using U = Unit<T>;
  constexpr int kWidth = Pack<T>::kCount, kPer = kUnitCount<T>, kUnits = kWidth / kPer;
  constexpr bool kInPlace = std::is_same_v<T, V>;  // exp takes the place of x
  constexpr bool kElements = !kPlain && sizeof(T) > 2;
  __shared__ Meeting<U, kUnits> maxima;
  __shared__ Meeting<V, kWidth> sums;
  __shared__ ptx::Barrier exchanged[2];

  const int thread = static_cast<int>(threadIdx.x), lanes = plan.lanes, team = plan.team;
  const Cell cell{.lanes = lanes, .lane = thread & (lanes - 1), .team = team, .cluster = plan.cluster};
  unsigned rank = 0;
#if __CUDA_ARCH__ >= 900
  if (plan.cluster > 1) {
    rank = ptx::cluster_rank();
    if (thread == 0) {
      ptx::barrier_init(&exchanged[0], 1);
      ptx::barrier_init(&exchanged[1], 1);
      ptx::fence_barrier_init();
      const auto cells = static_cast<std::uint32_t>(plan.cluster * lanes);
      ptx::barrier_arrive_expect(&exchanged[0], cells * kUnits * static_cast<std::uint32_t>(sizeof(U)));
      ptx::barrier_arrive_expect(&exchanged[1], cells * kWidth * static_cast<std::uint32_t>(sizeof(V)));
    }
    ptx::cluster_arrive_relaxed();
  }
#endif

  // The block's items are neighbouring tiles, each of `team` threads.
  const std::int64_t item =
      static_cast<std::int64_t>(blockIdx.x / static_cast<unsigned>(plan.cluster)) * plan.items + thread / team;
  const std::int64_t outer = plan.by_tiles.divide(item), tile = item - outer * plan.tiles;
  const int apart = kElements ? lanes : 1;  // of a thread's columns
  const std::int64_t column = tile * lanes * kWidth + cell.lane * (kElements ? 1 : kWidth);
  const std::int64_t n = static_cast<std::int64_t>(rank) * plan.chunk + (thread & (team - 1)) / lanes * kCell;
  const bool exists = outer < plan.outer && column < plan.columns && n < plan.length;
  const int steps = exists ? static_cast<int>(min(plan.length - n, static_cast<std::int64_t>(kCell))) : 0;
  [[maybe_unused]] const int count =  // of this thread's columns that exist
      kPlain ? kWidth
             : (static_cast<int>(min(static_cast<std::int64_t>(kWidth * apart), plan.columns - column)) + apart - 1) / apart;
  const bool whole = !kElements && count == kWidth;
  const T* p = in + (exists ? plan.kept.offset(outer) + n * plan.length_stride + column : 0);

  O* q = out + (outer * plan.length + n) * plan.columns + column;

  alignas(16) U x[kCell][kUnits];
#pragma unroll
  for (int k = 0; k < kCell; ++k) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) x[k][u] = nothing<T>();
  }
  if constexpr (kPlain) {
#pragma unroll
    for (int k = 0; k < kCell; ++k)
      if (k < steps) *reinterpret_cast<uint4*>(x[k]) = load_aligned16(p + k * plan.length_stride);
  } else if (whole) {
#pragma unroll
    for (int k = 0; k < kCell; ++k)
      if (k < steps) *reinterpret_cast<uint4*>(x[k]) = load_shifted16(p + k * plan.length_stride);
  } else {
#pragma unroll
    for (int k = 0; k < kCell; ++k, p += plan.length_stride) {
      if (k >= steps) continue;
      Pack<T> pack = as_pack<T>(*reinterpret_cast<uint4*>(x[k]));
#pragma unroll
      for (int e = 0; e < kWidth; ++e)
        if (e < count) pack.values[e] = p[e * apart];
      *reinterpret_cast<uint4*>(x[k]) = as_raw(pack);
    }
  }

  U largest[kUnits];
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    Largest<T> l;
#pragma unroll
    for (int k = 0; k < kCell; ++k) l.add(x[k][u]);
    largest[u] = l.m;
  }
#if __CUDA_ARCH__ >= 900
  if (plan.cluster > 1) ptx::cluster_wait();  // the others' barriers exist from here on
#endif
  join_cells(largest, nothing<T>(), cell, maxima, &exchanged[0], [](U a, U b) {
    Largest<T> l{a};
    l.add(b);
    return l.m;
  });

  V d[kWidth] = {};
  const V bias = plan.log ? 0 : kBias;
  const int most = static_cast<int>(min(plan.length, static_cast<std::int64_t>(kCell)));
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    V m[kPer];
#pragma unroll
    for (int e = 0; e < kPer; ++e) m[e] = element<T>(largest[u], e);
#pragma unroll
    for (int k = 0; k < kCell; ++k) {
      if (k >= most) continue;  // what no cell has
      forget(x[k][u]);
#pragma unroll
      for (int e = 0; e < kPer; ++e) {
        const V t = scaled_exp<O>(element<T>(x[k][u], e) - m[e], bias);
        d[u * kPer + e] = add(d[u * kPer + e], t);
        if constexpr (kInPlace)
          if (!plan.log) x[k][u] = as_unit(t);
      }
      forget(x[k][u]);
    }
    forget(largest[u]);  // packed maxima wait for the sums in half of the registers
  }
  join_cells(d, V{0}, cell, sums, &exchanged[1], [](V a, V b) { return a + b; });

  V m[kWidth], r[kWidth];
#pragma unroll
  for (int e = 0; e < kWidth; ++e) m[e] = element<T>(largest[e / kPer], e % kPer);
#pragma unroll
  for (int e = 0; e < kWidth; ++e) r[e] = plan.log ? log(d[e]) : reciprocal_for<T>(d[e]);
#pragma unroll
  for (int k = 0; k < kCell; ++k, q += plan.columns) {
    if (k >= most) continue;
    V y[kWidth];
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      const V v = element<T>(x[k][e / kPer], e % kPer);
      if (plan.log)
        y[e] = v - m[e] - r[e];
      else
        y[e] = divide<T>(kInPlace ? v : scaled_exp<O>(v - m[e], bias), d[e], r[e]);
    }
    if constexpr (kPlain) {
      if (k < steps) store_aligned<T, true>(q, y);
    } else {
      if constexpr (!kElements) store_anywhere<T>(q, y, k < steps && whole, lanes);
      if (k < steps && !whole) {
#pragma unroll
        for (int e = 0; e < kWidth; ++e)
          if (e < count) q[e * apart] = convert<O>(y[e]);
      }
    }
  }
}

}  // namespace xgemm::softmax
