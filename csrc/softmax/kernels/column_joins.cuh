// Softmax over columns: joins a column's cells, then a cluster's CTAs, as balanced trees over their number; the layout of the
// shared memory for it.
#pragma once
#include "device/ptx/cluster.cuh"
#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

/// Joins get(0) to get(n - 1) as a balanced tree. Values from `count` on are not read and do not change the result.
template <int n, int kFirst = 0, class V, class Get, class F>
__device__ __forceinline__ V join_tree(int count, const V& identity, const Get& get, const F& op) {
  if constexpr (n == 1)
    return kFirst < count ? get(kFirst) : identity;
  else
    return op(join_tree<n / 2, kFirst>(count, identity, get, op), join_tree<n / 2, kFirst + n / 2>(count, identity, get, op));
}

/// The same if `count` is often small: skips the second half of the tree if it is empty.
template <int n, class V, class Get, class F>
__device__ __forceinline__ V join_up_to(int count, const V& identity, const Get& get, const F& op) {
  const V joined = join_tree<n / 2>(count, identity, get, op);
  return count > n / 2 ? op(joined, join_tree<n / 2, n / 2>(count, identity, get, op)) : joined;
}

/// Values of neighbouring columns.
template <class V, int n>
struct alignas(16) Columns {
  V of[n];
};

/// Joins one value per cell over a CTA's cells of a column; every thread gets the results of its own columns. `place`: index of
/// the results of the CTA's first tile. Shared memory: for the values of the CTA's warps, and of its tiles or of its cluster's
/// CTAs.
template <class V, int n, class F>
__device__ __forceinline__ void join_cells(V (&value)[n], V identity, const Arguments& plan, int place, char* for_warps,
                                           char* for_results, F op) {
#pragma unroll
  for (int offset = 1; offset < kWarpSize; offset *= 2) {
    if (offset < plan.lanes || offset >= plan.team) continue;
#pragma unroll
    for (int e = 0; e < n; ++e) value[e] = op(value[e], __shfl_xor_sync(kFullWarp, value[e], offset));
  }
  if (plan.team <= kWarpSize && plan.cluster == 1) return;
  using Group = Columns<V, n>;
  Group *const of_warps = reinterpret_cast<Group*>(for_warps), *const results = reinterpret_cast<Group*>(for_results);
  constexpr int kWarps = kColumnThreads / kWarpSize;
  unsigned self = threadIdx.x;
  forget(self);  // else values derived from it stay in registers between calls
  const int thread = static_cast<int>(self), columns = plan.lanes * n, log2_columns = 31 - __clz(columns);
  const int lane = thread & (plan.lanes - 1), threads = static_cast<int>(blockDim.x);
  const int warps = min(plan.team, threads) / kWarpSize, teams = max(divide_pow2(threads, plan.team), 1);
  if (thread % kWarpSize < plan.lanes) {
    Group mine;
#pragma unroll
    for (int e = 0; e < n; ++e) mine.of[e] = value[e];
    of_warps[thread / kWarpSize * kColumnLanes + lane] = mine;
  }
  __syncthreads();
  for (int i = thread; i < columns * teams; i += threads) {
    const int column = i & (columns - 1), l = column / n, e = column % n, tile = i >> log2_columns;
    results[(place + tile) * kColumnLanes + l].of[e] =
        join_up_to<kWarps>(warps, identity, [&](int w) { return of_warps[(tile * warps + w) * kColumnLanes + l].of[e]; }, op);
  }
  __syncthreads();
  const Group result = results[(place + divide_pow2(thread, plan.team)) * kColumnLanes + lane];
#pragma unroll
  for (int e = 0; e < n; ++e) value[e] = result.of[e];
}

/// The layout of a CTA's dynamic shared memory. The slots of the cells come first.
template <class T>
struct ColumnsShared {
  using V = Value<T>;
  static constexpr int kWidth = Pack<T>::kCount, kPitch = kColumnLanes * kWidth;  // columns side by side
  int maxima, sums, warps, behind, bytes;
  bool plain;  ///< every vector is whole and aligned in input and output
  ColumnsShared(const Arguments& plan, bool plain) : plain(plain) {
    const int positions = plan.length < plan.cell ? static_cast<int>(plan.length) : plan.cell, threads = plan.threads;
    const int results = plan.cluster > 1 ? plan.cluster : plan.team > kWarpSize ? plan.items : 0;
    const int for_warps = threads / kWarpSize * kPitch * static_cast<int>(sizeof(V)),
              totals = 3 * kPitch * static_cast<int>(sizeof(V));
    maxima = positions * threads * 16;
    behind = sums = maxima + results * kPitch * static_cast<int>(sizeof(T));  // free again when threads combine values
    warps = sums + results * kPitch * static_cast<int>(sizeof(V));
    const int for_joins = warps + (for_warps > totals ? for_warps : totals);
    const int shifted = plain || sizeof(T) > 2 ? 0 : behind + positions * threads / plan.lanes * 16;
    bytes = for_joins > shifted ? for_joins : shifted;
  }
};

#if __CUDA_ARCH__ >= 900
/// Sends a CTA's maxima and sums to the other CTAs of its cluster and joins all of them: `totals` gets each column's maximum,
/// its sum, and the factor for the terms of this CTA.
template <class O, class T, class V>
__device__ __forceinline__ void join_blocks(const Arguments& plan, T* maxima, V* sums, V* totals, ptx::Barrier* arrived) {
  constexpr int kPer = kUnitCount<T>, kPitch = ColumnsShared<T>::kPitch;
  const int columns = plan.lanes * Pack<T>::kCount, rank = static_cast<int>(ptx::cluster_rank());
  for (int i = static_cast<int>(threadIdx.x); i < columns * plan.cluster; i += static_cast<int>(blockDim.x)) {
    const int column = i & (columns - 1), to = divide_pow2(i, columns);
    if (to == rank) continue;
    V* const sum = sums + rank * kPitch + column;
    Unit<T>* const maximum = reinterpret_cast<Unit<T>*>(maxima + rank * kPitch + column);
    ptx::store_async(sum, as_unit(*sum), arrived, static_cast<unsigned>(to));
    if (column % kPer == 0) ptx::store_async(maximum, *maximum, arrived, static_cast<unsigned>(to));
  }
  const int column = static_cast<int>(threadIdx.x);
  if (column < columns) {
    ptx::barrier_wait(arrived, 0);
    const auto maximum_of = [&](int b) { return convert<V>(maxima[b * kPitch + column]); };
    const V lowest = minus_infinity<V>();
    const V m = join_up_to<kMaxClusterBlocks>(plan.cluster, lowest, maximum_of, [](V a, V b) { return larger(a, b); });
    const auto sum_of = [&](int b) { return sums[b * kPitch + column] * scaled_exp<O>(maximum_of(b) - m, V{0}); };
    totals[column] = m;
    totals[kPitch + column] = join_up_to<kMaxClusterBlocks>(plan.cluster, V{0}, sum_of, [](V a, V b) { return add(a, b); });
    totals[2 * kPitch + column] = scaled_exp<O>(maximum_of(rank) - m, V{0});
  }
  __syncthreads();
}
#endif

}  // namespace xgemm::softmax
