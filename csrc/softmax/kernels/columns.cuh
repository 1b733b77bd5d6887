// Softmax over a dim that is not the fastest: [outer, length, columns]. A thread owns a cell in shared memory: plan.cell
// neighbouring positions of 16 bytes of columns. A column's cells belong to a few lanes, a CTA, or a cluster of up to 16 CTAs of
// up to 32 cells each. Each CTA takes exponentials relative to its own maximum, and the CTAs exchange maxima and sums once.
// Cells, then CTAs, are joined as balanced trees over their number: a column's bits depend on its length and dtype only.
//
// Layouts: columns have stride 1, positions and outer groups any stride; output contiguous; any alignment.
// Architectures: sm_80 and later; clusters on sm_90. Limits: 16 CTAs x 32 cells x 16 positions (48 in 16 bits); without
//   clusters 128 cells, in pieces of 32 bytes.
// Floor: one read, one write, in pieces of 128 bytes (64 take as long). The exp of 16-bit elements is computed twice. Three CTAs
//   of 64 KB or six of 32 fit an SM (two or four with registers), so loads overlap with other CTAs' arithmetic.
#pragma once
#include "device/ptx/cluster_exchange.cuh"
#include "device/ptx/cp_async.cuh"
#include "device/ptx/grid.cuh"
#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

/// Joins get(0) to get(n - 1) as a balanced tree. Values from `count` on do not exist and do not change the result.
template <int n, int kFirst = 0, class V, class Get, class F>
__device__ __forceinline__ V join_tree(int count, const V& identity, const Get& get, const F& op) {
  if constexpr (n == 1)
    return kFirst < count ? get(kFirst) : identity;
  else
    return op(join_tree<n / 2, kFirst>(count, identity, get, op), join_tree<n / 2, kFirst + n / 2>(count, identity, get, op));
}

/// The same where `count` is often small: skips the second half of the tree if it is empty.
template <int n, class V, class Get, class F>
__device__ __forceinline__ V join_up_to(int count, const V& identity, const Get& get, const F& op) {
  const V joined = join_tree<n / 2>(count, identity, get, op);
  return count > n / 2 ? op(joined, join_tree<n / 2, n / 2>(count, identity, get, op)) : joined;
}

/// 1 / d, as exactly as results from 16-bit elements need.
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

/// Shared memory through which a CTA's threads combine values: those of its warps, and those of its tiles or of its cluster's
/// CTAs.
template <class V, int n>
struct Meeting {
  Columns<V, n>*warps, *results;
};

/// n / d where d is a power of two.
__device__ __forceinline__ int divide_pow2(int n, int d) { return n >> (31 - __clz(d)); }

/// Joins one value per cell over a CTA's cells of a column; every thread gets the results of its own columns. `place`: index of
/// the results of the CTA's first tile.
template <class V, int n, class F>
__device__ __forceinline__ void join_cells(V (&value)[n], V identity, const Plan& plan, int place, const Meeting<V, n>& meeting,
                                           F op) {
#pragma unroll
  for (int offset = 1; offset < kWarpSize; offset *= 2) {
    if (offset < plan.lanes || offset >= plan.team) continue;
#pragma unroll
    for (int e = 0; e < n; ++e) value[e] = op(value[e], __shfl_xor_sync(kFullWarp, value[e], offset));
  }
  if (plan.team <= kWarpSize && plan.cluster == 1) return;
  using Group = Columns<V, n>;
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
    meeting.warps[thread / kWarpSize * kColumnLanes + lane] = mine;
  }
  __syncthreads();
  for (int i = thread; i < columns * teams; i += threads) {
    const int column = i & (columns - 1), l = column / n, e = column % n, tile = i >> log2_columns;
    meeting.results[(place + tile) * kColumnLanes + l].of[e] = join_up_to<kWarps>(
        warps, identity, [&](int w) { return meeting.warps[(tile * warps + w) * kColumnLanes + l].of[e]; }, op);
  }
  __syncthreads();
  const Group result = meeting.results[(place + divide_pow2(thread, plan.team)) * kColumnLanes + lane];
#pragma unroll
  for (int e = 0; e < n; ++e) value[e] = result.of[e];
}

/// The layout of a CTA's dynamic shared memory. The slots of the cells come first.
template <class T>
struct ColumnsShared {
  using V = Value<T>;
  static constexpr int kWidth = Pack<T>::kCount, kPitch = kColumnLanes * kWidth;  // columns side by side
  int maxima, sums, warps, behind, bytes;
  explicit ColumnsShared(const Plan& plan, bool plain) {
    const int positions = plan.length < plan.cell ? static_cast<int>(plan.length) : plan.cell, threads = plan.threads;
    const int results = plan.cluster > 1 ? plan.cluster : plan.team > kWarpSize ? plan.items : 0;
    const int for_warps = threads / kWarpSize * kPitch * static_cast<int>(sizeof(V)),
              totals = 3 * kPitch * static_cast<int>(sizeof(V));
    maxima = positions * threads * 16;
    behind = sums = maxima + results * kPitch * static_cast<int>(sizeof(T));  // free again when threads combine values
    warps = sums + results * kPitch * static_cast<int>(sizeof(V));
    const int meeting = warps + (for_warps > totals ? for_warps : totals);
    const int shifted = plain || sizeof(T) > 2 ? 0 : behind + positions * threads / plan.lanes * 16;
    bytes = meeting > shifted ? meeting : shifted;
  }
};

#if __CUDA_ARCH__ >= 900
/// Sends a CTA's maxima and sums to the other CTAs of its cluster and joins all of them: `totals` gets each column's maximum,
/// its sum, and the factor for the terms of this CTA.
template <class O, class T, class V>
__device__ __forceinline__ void join_blocks(const Plan& plan, T* maxima, V* sums, V* totals, ptx::Barrier* arrived) {
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

/// Replaces units of -inf by 0, which is subtracted from elements that are all -inf.
template <class T>
__device__ __forceinline__ Unit<T> finite_base(Unit<T> m) {
  constexpr Unit<T> kNothing = sizeof(T) == 8 ? static_cast<Unit<T>>(0xfff0000000000000ull) : 0xff800000u;
  if constexpr (sizeof(T) > 2) return m == kNothing ? 0 : m;
  if (((m ^ nothing<T>()) & 0xffff) == 0) m &= 0xffff0000;
  if (((m ^ nothing<T>()) >> 16) == 0) m &= 0xffff;
  return m;
}

/// Loads pieces of rows of 16-bit elements at any address as the aligned 16-byte blocks that hold them, and shifts them into
/// place in shared memory: a slot's contents do not depend on the address. Each thread has its own 16 bytes of a few positions.
template <class T>
struct ShiftedPieces {
  uint4 *mine, *behind;  ///< slots of position 0: this thread's; of the block behind the tile's last
  int steps, most;       ///< positions that exist; of any thread
  bool last;             ///< no thread has the next 16 bytes
  const T* row;          ///< this thread's first element
  std::int64_t stride;

  /// Sixteen bytes, of which `left` belong to the tensor; by elements where a copy would reach past its end.
  static __device__ __forceinline__ void ask_block(uint4* slot, const char* block, std::int64_t left) {
    if (left >= 16) return cp_async<16>(slot, block, 16);
    for (int e = 0; e < static_cast<int>(left) / 2; ++e)
      reinterpret_cast<std::uint16_t*>(slot)[e] = reinterpret_cast<const std::uint16_t*>(block)[e];
  }
  /// `end`: one past the tensor's last element. Starts the copies that finish() waits for.
  __device__ __forceinline__ void ask(const T* end, int lanes) const {
    const T* p = row;
    const int groups = divide_pow2(static_cast<int>(blockDim.x), lanes);
    for (int k = 0; k < steps; ++k, p += stride) {
      const char* const block = reinterpret_cast<const char*>(p) - misalignment(p);
      const std::int64_t left = reinterpret_cast<const char*>(end) - block;
      ask_block(mine + k * static_cast<int>(blockDim.x), block, left);
      if (last && misalignment(p) != 0) ask_block(behind + k * groups, block + 16, left - 16);
    }
  }
  __device__ __forceinline__ void finish(int lanes) const {
    cp_async_commit();
    cp_async_wait<0>();
    __syncwarp();
    const T* p = row;
    const int threads = static_cast<int>(blockDim.x), groups = divide_pow2(threads, lanes);
    for (int k = 0; k < most; ++k, p += stride) {
      const uint4 low = mine[k * threads], high = last ? behind[k * groups] : mine[k * threads + 1];
      __syncwarp();
      if (k < steps && misalignment(p) != 0) mine[k * threads] = shift_bytes(low, high, misalignment(p));
    }
  }
};

/// Copies the pieces of rows in a warp's slots word by word, so that neighbouring lanes access neighbouring words, for rows at
/// any address. 16-bit elements are only stored in this way.
template <class T>
struct WarpRows {
  using U = Unit<T>;
  static constexpr int kPer = kUnitCount<T>, kUnits = 16 / static_cast<int>(sizeof(U));
  U* slots;  ///< of the warp, position 0
  int lanes, steps, most;
  std::int64_t columns, column;  ///< of a row; the first of this thread's tile

  /// f(word's number in the row, slot, columns from there on, element's offset, positions) for each word of this lane; `offset`:
  /// of this thread's row.
  template <class F>
  __device__ __forceinline__ void each(std::int64_t offset, const F& f) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll 1
    for (int j = 0; j < kUnits; ++j) {
      const int unit = j * kWarpSize + lane, i = unit & (lanes * kUnits - 1), owner = unit / kUnits & -lanes;
      const std::int64_t first = __shfl_sync(kFullWarp, column, owner) + i * kPer;
      const std::int64_t row = __shfl_sync(kFullWarp, offset, owner);
      const int rows = __shfl_sync(kFullWarp, steps, owner);
      f(i, slots + unit, static_cast<int>(min(max(columns - first, std::int64_t{-1}), std::int64_t{4})), row + first, rows);
    }
  }
  static __device__ __forceinline__ int plane() { return static_cast<int>(blockDim.x) * kUnits; }

  __device__ __forceinline__ void load(const T* in, std::int64_t offset, std::int64_t stride) const {
    each(offset, [&](int, U* slot, int left, std::int64_t at, int rows) {
      const T* p = in + at;
#pragma unroll 4
      for (int k = 0; k < rows; ++k, p += stride, slot += plane())
        if (left > 0) cp_async<sizeof(U)>(slot, p, sizeof(U));
    });
    cp_async_commit();
    cp_async_wait<0>();
    __syncwarp();
  }
  /// Elements O as wide as T.
  template <class O>
  __device__ __forceinline__ void store(O* out, std::int64_t offset) const {
    __syncwarp();
    each(offset, [&](int i, const U* slot, int left, std::int64_t at, int rows) {
      O* q = out + at;
#pragma unroll 4
      for (int k = 0; k < most; ++k, q += columns, slot += plane()) {
        const U word = *slot;
        if constexpr (kPer == 1) {
          if (k < rows && left > 0) *reinterpret_cast<U*>(q) = word;
        } else {
          const U before = __shfl_up_sync(kFullWarp, word, 1);
          if (k >= rows || left < 0) continue;
          auto* const halves = reinterpret_cast<unsigned short*>(q);
          if ((misalignment(q) & 2) == 0) {
            if (left > 1)
              *reinterpret_cast<U*>(q) = word;
            else if (left > 0)
              halves[0] = static_cast<unsigned short>(word);
          } else {  // aligned words end in the first half of this one
            if (i > 0 && left > 0)
              *reinterpret_cast<U*>(q - 1) = __funnelshift_r(before, word, 16);
            else if (i > 0)
              halves[-1] = static_cast<unsigned short>(before >> 16);
            else if (left > 0)
              halves[0] = static_cast<unsigned short>(word);
            if (i == lanes * kUnits - 1 && left > 1) halves[1] = static_cast<unsigned short>(word >> 16);
          }
        }
      }
    });
  }
};

/// A thread's part of the problem.
struct Share {
  std::int64_t outer, n, tile_column, column;  ///< group; first position; first column of its tile and its own
  int steps, whole;                            ///< positions that exist, and those of them where its own columns do
  /// `rank` of `cluster` blocks; the block's items are neighbouring tiles.
  __device__ __forceinline__ Share(const Plan& plan, int width, unsigned thread, unsigned cluster, unsigned rank) {
    const int t = static_cast<int>(thread), in_tile = t & (plan.team - 1);
    const std::int64_t item = static_cast<std::int64_t>(cluster) * plan.items + divide_pow2(t, plan.team);
    outer = plan.by_tiles.divide(item);
    tile_column = (item - outer * plan.tiles) * plan.lanes * width;
    column = tile_column + (in_tile & (plan.lanes - 1)) * width;
    n = rank * plan.chunk + divide_pow2(in_tile, plan.lanes) * plan.cell;
    const std::int64_t left = min(plan.length - n, static_cast<std::int64_t>(plan.cell));
    steps = outer < plan.outer && left > 0 ? static_cast<int>(left) : 0;
    whole = column < plan.columns ? steps : 0;
  }
};

/// kPlain: every vector is whole and aligned in input and output. `end`: one past the input's last element.
template <class T, class O, bool kPlain>
__global__ void __launch_bounds__(kColumnThreads, sizeof(T) == 8          ? 1
                                                  : sizeof(T) < sizeof(O) ? 2
                                                                          : 3)
    softmax_columns(const __grid_constant__ Plan plan, const __grid_constant__ ColumnsShared<T> places, const T* __restrict__ in,
                    const T* end, O* __restrict__ out) {
  using V = Value<T>;
  using U = Unit<T>;
  constexpr int kWidth = Pack<T>::kCount, kPer = kUnitCount<T>, kUnits = kWidth / kPer;
  constexpr bool kInPlace = std::is_same_v<T, V>;               // exp takes the place of x
  constexpr bool kByWords = !kPlain && sizeof(T) == sizeof(O);  // results are stored from the slots
  constexpr int kTogether = sizeof(T) == 2 ? 2 : 4;             // positions, as registers allow
  extern __shared__ uint4 slots[];
  [[maybe_unused]] __shared__ ptx::Barrier arrived;
  ptx::grid_release();
  in = ptx::grid_wait(in);

  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x), lanes = plan.lanes, team = plan.team;
  unsigned rank = 0, group = blockIdx.x;
#if __CUDA_ARCH__ >= 900
  if (plan.cluster > 1) {
    rank = ptx::cluster_rank();
    group = ptx::cluster_index();
    if (thread == 0) {
      ptx::barrier_init(&arrived, 1);
      ptx::fence_barrier_init();
      ptx::barrier_arrive_expect(&arrived, static_cast<unsigned>((plan.cluster - 1) * lanes) *
                                               static_cast<unsigned>(sizeof(U) * kUnits + sizeof(V) * kWidth));
    }
  }
#endif
  const int most = static_cast<int>(min(plan.length, static_cast<std::int64_t>(plan.cell)));  // positions a cell
  char* const base = reinterpret_cast<char*>(slots);
  uint4* const mine = slots + thread;  // position k: mine[k * threads]
  const auto rows_of = [&](const Share& share) {
    return WarpRows<T>{.slots = reinterpret_cast<U*>(slots + (thread & -kWarpSize)),
                       .lanes = lanes,
                       .steps = share.steps,
                       .most = most,
                       .columns = plan.columns,
                       .column = share.tile_column};
  };
  {
    const Share share(plan, kWidth, threadIdx.x, group, rank);
    const std::int64_t from = share.steps > 0 ? plan.kept.offset(share.outer) + share.n * plan.length_stride : 0;
    uint4 none;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) reinterpret_cast<U*>(&none)[u] = nothing<T>();
    for (int k = kPlain ? share.whole : share.steps; k < most; ++k) mine[k * threads] = none;
    if constexpr (kPlain) {
      const T* p = in + from + share.column;
#pragma unroll 4
      for (int k = 0; k < share.whole; ++k, p += plan.length_stride) cp_async<16>(mine + k * threads, p, 16);
      cp_async_commit();
      cp_async_wait<0>();
    } else if constexpr (kPer == 1) {
      rows_of(share).load(in, from, plan.length_stride);
    } else {
      const ShiftedPieces<T> pieces{.mine = mine,
                                    .behind = reinterpret_cast<uint4*>(base + places.behind) + divide_pow2(thread, lanes),
                                    .steps = share.column < plan.columns + kWidth ? share.steps : 0,
                                    .most = most,
                                    .last = (thread & (lanes - 1)) == lanes - 1,
                                    .row = in + from + share.column,
                                    .stride = plan.length_stride};
      pieces.ask(end, lanes);
      pieces.finish(lanes);
      if (team > kWarpSize) __syncthreads();  // `behind` lies where threads combine values
    }
  }

#if __CUDA_ARCH__ >= 900
  if (plan.cluster > 1) {
    ptx::cluster_arrive_thread();  // from here on others may send; by thread, as lanes have loaded different numbers of positions
  }
#endif

  const int place = plan.cluster > 1 ? static_cast<int>(rank) : 0;
  U largest[kUnits] = {};
  const auto load = [&](int k, U(&x)[kUnits]) {
    const uint4 raw = mine[k * threads];
    __builtin_memcpy(x, &raw, sizeof(raw));
    if constexpr (kPer > 1) {  // unpacked at each use: packed values take half of the registers
#pragma unroll
      for (int u = 0; u < kUnits; ++u) forget(largest[u]);
    }
  };
  {
    Largest<T> l[kUnits];
#pragma unroll kTogether
    for (int k = 0; k < most; ++k) {
      U x[kUnits];
      load(k, x);
#pragma unroll
      for (int u = 0; u < kUnits; ++u) l[u].add(x[u]);
    }
#pragma unroll
    for (int u = 0; u < kUnits; ++u) largest[u] = l[u].m;
  }
  const Meeting<U, kUnits> maxima{reinterpret_cast<Columns<U, kUnits>*>(base + places.warps),
                                  reinterpret_cast<Columns<U, kUnits>*>(base + places.maxima)};
  join_cells(largest, nothing<T>(), plan, place, maxima, [](U a, U b) {
    Largest<T> l{a};
    l.add(b);
    return l.m;
  });
  if (plan.cluster > 1) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) largest[u] = finite_base<T>(largest[u]);
  }

  V d[kWidth] = {};
  const V bias = plan.log ? 0 : kBias;
  const auto minus_largest = [&](const U(&x)[kUnits], int e) {
    return element<T>(x[e / kPer], e % kPer) - element<T>(largest[e / kPer], e % kPer);
  };
#pragma unroll kTogether
  for (int k = 0; k < most; ++k) {
    U x[kUnits];
    load(k, x);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      const V t = scaled_exp<O>(minus_largest(x, e), bias);
      d[e] = add(d[e], t);
      if constexpr (kInPlace) x[e] = as_unit(t);
    }
    if constexpr (kInPlace) {
      if (!plan.log) {
        uint4 raw;
        __builtin_memcpy(&raw, x, sizeof(raw));
        mine[k * threads] = raw;
      }
    }
  }
  const Meeting<V, kWidth> sums{reinterpret_cast<Columns<V, kWidth>*>(base + places.warps),
                                reinterpret_cast<Columns<V, kWidth>*>(base + places.sums)};
  join_cells(d, V{0}, plan, place, sums, [](V a, V b) { return add(a, b); });

  [[maybe_unused]] V part[kInPlace ? kWidth : 1];  // of the whole column's maximum
#pragma unroll
  for (V& p : part) p = 1;
#if __CUDA_ARCH__ >= 900
  if (plan.cluster > 1) {
    ptx::cluster_wait_thread();
    V* const totals = reinterpret_cast<V*>(base + places.warps);
    join_blocks<O>(plan, reinterpret_cast<T*>(base + places.maxima), reinterpret_cast<V*>(base + places.sums), totals, &arrived);
    const int first = (static_cast<int>(threadIdx.x) & (lanes - 1)) * kWidth;
    constexpr int kPitch = ColumnsShared<T>::kPitch;
    Pack<T> m;
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      m.values[e] = convert<T>(totals[first + e]);
      d[e] = totals[kPitch + first + e];
      if constexpr (kInPlace) part[e] = totals[2 * kPitch + first + e];
    }
    __builtin_memcpy(largest, m.values, sizeof(largest));
  }
#endif

  V r[kWidth];
#pragma unroll
  for (int e = 0; e < kWidth; ++e) r[e] = plan.log ? log(d[e]) : reciprocal_for<T>(d[e]);
  unsigned self = threadIdx.x;
  forget(self);  // computed again instead of kept in registers
  const Share share(plan, kWidth, self, group, rank);
  const std::int64_t to = (share.outer * plan.length + share.n) * plan.columns;
  O* q = out + to + share.column;
#pragma unroll kTogether / 2
  for (int k = 0; k < share.whole; ++k, q += plan.columns) {
    U x[kUnits];
    load(k, x);
    V y[kWidth];
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      if (plan.log)
        y[e] = minus_largest(x, e) - r[e];
      else if constexpr (kInPlace)
        y[e] = divide<T>(element<T>(x[e], 0) * part[e], d[e], r[e]);
      else
        y[e] = divide<T>(scaled_exp<O>(minus_largest(x, e), bias), d[e], r[e]);
    }
    if constexpr (kPlain) {
      store_aligned<T, true>(q, y);
    } else if constexpr (kByWords) {
      store_aligned<T>(reinterpret_cast<O*>(mine + k * threads), y);
    } else {
#pragma unroll
      for (int e = 0; e < kWidth; ++e)
        if (share.column + e < plan.columns) q[e] = convert<O>(y[e]);
    }
  }
  if constexpr (kByWords) rows_of(share).store(out, to);
}

}  // namespace xgemm::softmax
