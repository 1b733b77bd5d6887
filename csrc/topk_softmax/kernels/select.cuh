// Top k of a row by a warp, or by a CTA of up to 8 warps, in one read (after WarpSelect: Johnson, Douze and Jegou,
// "Billion-scale similarity search with GPUs", arXiv 1702.08734; thresholds: docs/topk_softmax.md).
//
// Each warp keeps a sorted list of 32 or 64 entries and a threshold. Elements above the threshold are compacted by ballot into a
// queue in shared memory and merged into the list, 32 at a time, by a bitonic sort. Entries are totally ordered, so the result
// does not depend on which warp saw which threshold when.
//
// Layouts: any strides; 16-byte loads if the row has stride 1. Limits: length < 2^31, k <= 64, and k <= 32 for a single warp.
// Architectures: sm_80 and later. Floor: one read of the rows, k * (value + 8) bytes written per row. An element costs one
// maximum (and an exponential unless renormalize). A tile with elements above the threshold costs about 30 operations per
// step, and as many steps as the most such elements of one lane.
#pragma once
#include "topk_softmax/kernels/common.cuh"

namespace xgemm::topk_softmax {

inline constexpr int kMaxWarps = 8;

/// Opaque to the compiler, which would otherwise compute the sorting network's predicates ahead and keep them in registers.
__device__ __forceinline__ int lane_id() {
  int lane = static_cast<int>(threadIdx.x) & (kWarpSize - 1);
  asm volatile("" : "+r"(lane));
  return lane;
}

template <class V>
__device__ __forceinline__ Entry<V> shuffle(Entry<V> x, int from) {
  return {__shfl_sync(kFullWarp, x.key, from), __shfl_sync(kFullWarp, x.rest, from)};
}
template <class V>
__device__ __forceinline__ Entry<V> max_of(Entry<V> a, Entry<V> b) {
  return larger(a, b) ? a : b;
}
template <class V>
__device__ __forceinline__ Entry<V> min_of(Entry<V> a, Entry<V> b) {
  return larger(a, b) ? b : a;
}
__device__ __forceinline__ bool larger(unsigned a, unsigned b) { return a > b; }
__device__ __forceinline__ bool larger(unsigned long long a, unsigned long long b) { return a > b; }

/// One step of a sorting network over the lanes.
template <class X>
__device__ __forceinline__ X exchange(X x, int offset, bool keep_larger) {
  X other;
  if constexpr (std::is_integral_v<X>)
    other = __shfl_xor_sync(kFullWarp, x, offset);
  else
    other = {__shfl_xor_sync(kFullWarp, x.key, offset), __shfl_xor_sync(kFullWarp, x.rest, offset)};
  return larger(x, other) == keep_larger ? x : other;
}

/// A bitonic sequence over the lanes -> descending.
template <class X>
__device__ __forceinline__ X merge_descending(X x, int lane) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) x = exchange(x, offset, (lane & offset) == 0);
  return x;
}

template <class X>
__device__ __forceinline__ X sort_ascending(X x, int lane) {
#pragma unroll
  for (int size = 2; size <= kWarpSize; size *= 2)
#pragma unroll
    for (int offset = size / 2; offset > 0; offset /= 2) x = exchange(x, offset, ((lane & offset) != 0) == ((lane & size) == 0));
  return x;
}

/// The best entries so far, descending over the lanes of a, then (if `wide`) of b.
template <class V>
struct List {
  Entry<V> a{0, 0}, b{0, 0};
  bool wide;

  /// Merges 32 more entries, one per lane, in any order.
  __device__ __forceinline__ void insert(Entry<V> q) {
    const int lane = lane_id();
    q = sort_ascending(q, lane);
    if (!wide) {
      a = merge_descending(max_of(a, q), lane);
      return;
    }
    b = merge_descending(max_of(b, q), lane);
    const Entry<V> reversed = shuffle(b, kWarpSize - 1 - lane);
    b = merge_descending(min_of(a, reversed), lane);
    a = merge_descending(max_of(a, reversed), lane);
  }

  /// Merges another warp's list.
  __device__ __forceinline__ void join(const Entry<V>* other) {
    const int lane = lane_id(), mirror = kWarpSize - 1 - lane;
    if (!wide) {
      a = merge_descending(max_of(a, other[mirror]), lane);
      return;
    }
    const Entry<V> x = max_of(a, other[kWarpSize + mirror]), y = max_of(b, other[mirror]);
    a = merge_descending(max_of(x, y), lane);
    b = merge_descending(min_of(x, y), lane);
  }

  __device__ __forceinline__ void store(Entry<V>* to) const {
    const int lane = lane_id();
    to[lane] = a;
    if (wide) to[kWarpSize + lane] = b;
  }
};

template <class T, int kSteps>
__device__ __forceinline__ Value<T> element(const uint4 (&raw)[kSteps], int i) {
  constexpr int kWidth = Pack<T>::kCount;
  return convert<Value<T>>(as_pack<T>(raw[i / kWidth]).values[i % kWidth]);
}

/// The largest element; NaN is larger than everything. 16-bit elements two at a time.
template <class T, int kSteps>
__device__ __forceinline__ Value<T> largest(const uint4 (&raw)[kSteps]) {
  if constexpr (sizeof(T) == 2) {
    using Two = std::conditional_t<std::is_same_v<T, half>, __half2, __nv_bfloat162>;
    const Two* const pairs = reinterpret_cast<const Two*>(raw);
    Two most = pairs[0];
#pragma unroll
    for (int i = 1; i < 4 * kSteps; ++i) most = __hmax2_nan(most, pairs[i]);
    return convert<float>(__hmax_nan(most.x, most.y));
  } else {
    Value<T> most = element<T>(raw, 0);
#pragma unroll
    for (int i = 1; i < kSteps * Pack<T>::kCount; ++i) most = xgemm::larger(most, element<T>(raw, i));
    return most;
  }
}

/// Sum of exponentials below a running maximum. NaN and +inf make the sum NaN; the long sum is kept in fp64.
template <class V>
struct ExpSum {
  V m;
  double sum;

  __device__ __forceinline__ void raise(V to) {
    if (to > m) {
      sum *= static_cast<double>(exp(m - to));
      m = to;
    }
  }
  /// Adds a tile whose largest element is `most`.
  template <class T, int kSteps>
  __device__ __forceinline__ void add(const uint4 (&raw)[kSteps], V most) {
    constexpr int kWidth = Pack<T>::kCount;
    raise(most);
    const V base = m == minus_infinity<V>() ? V{0} : m;
    V part = 0;
#pragma unroll
    for (int i = 0; i < kSteps * kWidth; ++i) part += exp(element<T>(raw, i) - base);
    sum += static_cast<double>(part);
  }
};

template <class T>
__global__ void __launch_bounds__(kMaxWarps* kWarpSize, sizeof(T) == 8 ? 2 : 3)
    topk_select(const __grid_constant__ Plan plan, const T* __restrict__ in, void* __restrict__ values,
                std::int64_t* __restrict__ indices) {
  using V = Value<T>;
  using K = Key<V>;
  constexpr int kWidth = Pack<T>::kCount, kTileSteps = tile_steps(sizeof(T) == 8 ? DType::f64 : DType::f32);
  constexpr int kTile = kTileSteps * kWarpSize;  // in vectors
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ K thresholds[kMaxWarps];
  __shared__ ExpSum<V> sums[kMaxWarps];

  const int lane = lane_id(), in_block = static_cast<int>(threadIdx.x) / kWarpSize;
  const int warps = plan.lanes / kWarpSize, warp = warps > 1 ? in_block : 0;
  const int rows = warps > 1 ? 1 : static_cast<int>(blockDim.x) / kWarpSize;
  Entry<V>* const queue = reinterpret_cast<Entry<V>*>(shared) + in_block * kQueueEntries;
  const bool aligned = plan.aligned && misalignment(in) == 0;
  const auto length = static_cast<unsigned>(plan.length);
  const int vectors = static_cast<int>((plan.length + kWidth - 1) / kWidth);

  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * rows + (in_block - warp); row < plan.rows;
       row += static_cast<std::int64_t>(gridDim.x) * rows) {
    const auto offset = plan.kept.offsets(row);
    List<V> list{.wide = plan.k > kWarpSize};
    ExpSum<V> total{minus_infinity<V>(), 0};
    Entry<V> last{0, 0};  // the list's k-th: a new one must be larger
    K threshold = 0;
    int waiting = 0;

    const auto merge = [&](const Entry<V>& q) {
      list.insert(q);
      last = shuffle(Entry<V>{list.wide ? list.b.key : list.a.key, list.wide ? list.b.rest : list.a.rest},
                     (plan.k - 1) & (kWarpSize - 1));
      threshold = max(threshold, last.key);
    };

    for (int tile = warp * kTile; tile == warp * kTile || tile < vectors; tile += warps * kTile) {
      uint4 raw[kTileSteps];
      load_row(raw, plan, in + offset.in, aligned, tile + lane, kWarpSize);
      const V most = largest<T>(raw);
      if (tile == warp * kTile) {
        const K own = tile + lane < vectors ? key_of(most) : K{0};
        threshold = __shfl_sync(kFullWarp, sort_ascending(own, lane_id()), kWarpSize - plan.rank);
        if (warps > 1) {
          if (lane == 0) thresholds[warp] = threshold;
          __syncthreads();
        }
      }
      if (warps > 1) {
        const K theirs = lane < warps ? atomicMax(&thresholds[lane], K{0}) : ~K{0};
        threshold = max(last.key, reduce_lanes(theirs, kWarpSize, [](K a, K b) { return min(a, b); }));
      }
      if (!plan.renormalize) total.template add<T>(raw, most);

      const V bound = value_of(threshold);  // NaN if there is no threshold yet: everything passes
      if (!__any_sync(kFullWarp, !(most < bound))) continue;
      unsigned passes = 0;  // one bit per element
#pragma unroll
      for (int i = 0; i < kTileSteps * kWidth; ++i) passes |= !(element<T>(raw, i) < bound) ? 1u << i : 0u;
      // Each lane's next element, read again from L1: registers cannot be indexed.
      while (__any_sync(kFullWarp, passes != 0)) {
        const unsigned i = static_cast<unsigned>(__ffs(static_cast<int>(passes)) - 1);
        const unsigned index = (static_cast<unsigned>(tile + lane) + i / kWidth * kWarpSize) * kWidth + i % kWidth;
        Entry<V> entry{0, ~index};
        if (passes != 0 && index < length) entry.key = key_of(convert<V>(in[offset.in + index * plan.stride]));
        passes &= passes - 1;
        const bool want = entry.key != 0 && entry.key >= threshold && larger(entry, last);
        const unsigned who = __ballot_sync(kFullWarp, want);
        if (want) queue[waiting + __popc(who & ((1u << lane) - 1))] = entry;
        waiting += __popc(who);
        if (waiting < kWarpSize) continue;
        __syncwarp();
        waiting -= kWarpSize;
        merge(queue[waiting + lane]);
        if (warps > 1) {
          const K mine = __shfl_sync(kFullWarp, list.a.key, plan.rank - 1);
          if (lane == 0) atomicMax(&thresholds[warp], mine);
        }
        __syncwarp();
      }
    }
    __syncwarp();
    if (waiting > 0) merge(lane < waiting ? queue[lane] : Entry<V>{0, 0});

    const auto add = [](double a, double b) { return a + b; };
    if (!plan.renormalize) {
      total.raise(reduce_lanes(total.m, kWarpSize, [](V a, V b) { return fmax(a, b); }));
      total.sum = reduce_lanes(total.sum, kWarpSize, add);
    }
    if (warps > 1) {
      __syncwarp();
      list.store(queue);
      if (lane == 0) sums[warp] = total;
      for (int others = warps / 2; others > 0; others /= 2) {
        __syncthreads();
        if (warp < others) {
          list.join(queue + others * kQueueEntries);
          list.store(queue);
        }
      }
    }
    if (warp == 0) {
      const V m = value_of(shuffle(list.a, 0).key);
      const V first = lane < plan.k ? exp(value_of(list.a.key) - m) : V{0};
      const V second = lane + kWarpSize < plan.k ? exp(value_of(list.b.key) - m) : V{0};
      V sum;
      if (plan.renormalize) {
        sum = warp_reduce(first + second, [](V a, V b) { return a + b; });
      } else {
        double whole = total.sum;
        if (warps > 1) {
          ExpSum<V> part{minus_infinity<V>(), 0};
          if (lane < warps) part = sums[lane];
          part.raise(m);
          whole = reduce_lanes(part.sum, kWarpSize, add);
        }
        sum = static_cast<V>(whole);
      }
      if (lane < plan.k) store_result<T>(plan, values, indices, offset.out, lane, first / sum, list.a.index());
      if (lane + kWarpSize < plan.k)
        store_result<T>(plan, values, indices, offset.out, lane + kWarpSize, second / sum, list.b.index());
    }
    if (warps > 1) __syncthreads();  // the next row reuses the shared memory
  }
}

}  // namespace xgemm::topk_softmax
