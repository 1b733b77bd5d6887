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
#include "softmax/kernels/column_copies.cuh"
#include "softmax/kernels/column_joins.cuh"
#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

/// Replaces units of -inf by 0, which is subtracted from elements that are all -inf.
template <class T>
__device__ __forceinline__ Unit<T> finite_base(Unit<T> m) {
  if constexpr (sizeof(T) > 2) return m == nothing<T>() ? 0 : m;
  if (((m ^ nothing<T>()) & 0xffff) == 0) m &= 0xffff0000;
  if (((m ^ nothing<T>()) >> 16) == 0) m &= 0xffff;
  return m;
}

/// A thread's part of the problem.
struct Share {
  std::int64_t outer, n, tile_column, column;  ///< group; first position; first column of its tile and its own
  int steps, whole;                            ///< positions in bounds; the same, or 0 if its columns are out of bounds
  /// `rank` of `cluster` blocks; the block's items are neighbouring tiles.
  __device__ __forceinline__ Share(const Arguments& plan, int width, unsigned thread, unsigned cluster, unsigned rank) {
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

/// The words of a warp's slots.
template <class T>
__device__ __forceinline__ WarpRows<T> warp_rows(const Arguments& plan, const Share& share, uint4* slots, int most) {
  return {.slots = reinterpret_cast<Unit<T>*>(slots + (static_cast<int>(threadIdx.x) & -kWarpSize)),
          .lanes = plan.lanes,
          .steps = share.steps,
          .most = most,
          .columns = plan.columns,
          .column = share.tile_column};
}

/// Loads a thread's cell, of `most` positions; -inf where there are fewer.
template <class T>
__device__ __forceinline__ void load_cell(const Arguments& plan, const ColumnsShared<T>& places, const Share& share, const T* in,
                                          const T* end, uint4* slots, int most) {
  constexpr int kWidth = Pack<T>::kCount, kPer = kUnitCount<T>;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x), lanes = plan.lanes;
  uint4* const mine = slots + thread;
  const std::int64_t from = share.steps > 0 ? plan.kept.offset(share.outer) + share.n * plan.length_stride : 0;
  for (int k = places.plain ? share.whole : share.steps; k < most; ++k) mine[k * threads] = nothing16<T>();
  if (places.plain) {
    const T* p = in + from + share.column;
#pragma unroll 4
    for (int k = 0; k < share.whole; ++k, p += plan.length_stride) cp_async<16>(mine + k * threads, p, 16);
    cp_async_commit();
    cp_async_wait<0>();
  } else if constexpr (kPer == 1) {
    warp_rows<T>(plan, share, slots, most).load(in, from, plan.length_stride);
  } else {
    char* const behind = reinterpret_cast<char*>(slots) + places.behind;
    const ShiftedPieces<T> pieces{.mine = mine,
                                  .behind = reinterpret_cast<uint4*>(behind) + divide_pow2(thread, lanes),
                                  .steps = share.column < plan.columns + kWidth ? share.steps : 0,
                                  .most = most,
                                  .last = (thread & (lanes - 1)) == lanes - 1,
                                  .row = in + from + share.column,
                                  .stride = plan.length_stride};
    pieces.ask(end, lanes);
    pieces.finish(lanes);
    if (plan.team > kWarpSize) __syncthreads();  // `behind` overlaps the memory in which threads combine values
  }
}

/// Stores a thread's results; result(k, y) computes those of position k.
template <class T, class O, class F>
__device__ __forceinline__ void store_cell(const Arguments& plan, const Share& share, O* out, uint4* slots, int most, bool plain,
                                           const F& result) {
  constexpr int kWidth = Pack<T>::kCount, kTogether = sizeof(T) == 2 ? 1 : 2;  // positions, as registers allow
  constexpr bool kByWords = sizeof(T) == sizeof(O);                            // results are stored from the slots
  const std::int64_t to = (share.outer * plan.length + share.n) * plan.columns;
  O* q = out + to + share.column;
#pragma unroll kTogether
  for (int k = 0; k < share.whole; ++k, q += plan.columns) {
    Value<T> y[kWidth];
    result(k, y);
    if (plain)
      store_aligned<T, true>(q, y);
    else if constexpr (kByWords)
      store_aligned<T>(reinterpret_cast<O*>(slots + threadIdx.x + k * blockDim.x), y);
    else
      store_singles(q, y, static_cast<int>(min(plan.columns - share.column, std::int64_t{kWidth})));
  }
  if constexpr (kByWords)
    if (!plain) warp_rows<T>(plan, share, slots, most).store(out, to);
}

/// `end`: one past the input's last element.
template <class T, class O>
__global__ void __launch_bounds__(kColumnThreads, sizeof(T) == 8          ? 1
                                                  : sizeof(T) < sizeof(O) ? 2
                                                                          : 3)
    softmax_columns(const __grid_constant__ Arguments plan, const __grid_constant__ ColumnsShared<T> places,
                    const T* __restrict__ in, const T* end, O* __restrict__ out) {
  using V = Value<T>;
  using U = Unit<T>;
  constexpr int kWidth = Pack<T>::kCount, kPer = kUnitCount<T>, kUnits = kWidth / kPer;
  constexpr bool kInPlace = std::is_same_v<T, V>;    // exp overwrites x
  constexpr int kTogether = sizeof(T) == 2 ? 2 : 4;  // positions, as registers allow
  extern __shared__ uint4 slots[];
  [[maybe_unused]] __shared__ ptx::Barrier arrived;
  ptx::grid_release();
  in = ptx::grid_wait(in);

  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  unsigned rank = 0, group = blockIdx.x;
#if __CUDA_ARCH__ >= 900
  if (plan.cluster > 1) {
    rank = ptx::cluster_rank();
    group = ptx::cluster_index();
    if (thread == 0) {
      ptx::barrier_init(&arrived, 1);
      ptx::fence_barrier_init();
      ptx::barrier_arrive_expect(&arrived, static_cast<unsigned>((plan.cluster - 1) * plan.lanes) *
                                               static_cast<unsigned>(sizeof(U) * kUnits + sizeof(V) * kWidth));
    }
  }
#endif
  const int most = static_cast<int>(min(plan.length, static_cast<std::int64_t>(plan.cell)));  // positions per cell
  char* const base = reinterpret_cast<char*>(slots);
  uint4* const mine = slots + thread;  // position k: mine[k * threads]
  load_cell<T>(plan, places, Share(plan, kWidth, threadIdx.x, group, rank), in, end, slots, most);

#if __CUDA_ARCH__ >= 900
  // From here on others may send; by thread, as lanes have loaded different numbers of positions.
  if (plan.cluster > 1) ptx::cluster_arrive_thread();
#endif

  const int place = plan.cluster > 1 ? static_cast<int>(rank) : 0;
  U largest[kUnits] = {};
  const auto load = [&](int k, U(&x)[kUnits]) {
    __builtin_memcpy(x, &mine[k * threads], sizeof(x));
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
  join_cells(largest, nothing<T>(), plan, place, base + places.warps, base + places.maxima, [](U a, U b) {
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
      if (!plan.log) __builtin_memcpy(&mine[k * threads], x, sizeof(x));
    }
  }
  join_cells(d, V{0}, plan, place, base + places.warps, base + places.sums, [](V a, V b) { return add(a, b); });

  [[maybe_unused]] V part[kInPlace ? kWidth : 1];  // e^(this CTA's maximum - the column's)
#pragma unroll
  for (V& p : part) p = 1;
#if __CUDA_ARCH__ >= 900
  if (plan.cluster > 1) {
    ptx::cluster_wait_thread();
    V* const totals = reinterpret_cast<V*>(base + places.warps);
    join_blocks<O>(plan, reinterpret_cast<T*>(base + places.maxima), reinterpret_cast<V*>(base + places.sums), totals, &arrived);
    const int first = (static_cast<int>(threadIdx.x) & (plan.lanes - 1)) * kWidth;
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
  for (int e = 0; e < kWidth; ++e) r[e] = plan.log ? log(d[e]) : reciprocal<T>(d[e]);
  unsigned self = threadIdx.x;
  forget(self);  // computed again instead of kept in registers
  const Share share(plan, kWidth, self, group, rank);
  store_cell<T>(plan, share, out, slots, most, places.plain, [&](int k, V(&y)[kWidth]) {
    U x[kUnits];
    load(k, x);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      if (plan.log)
        y[e] = minus_largest(x, e) - r[e];
      else if constexpr (kInPlace)
        y[e] = divide<T>(element<T>(x[e], 0) * part[e], d[e], r[e]);
      else
        y[e] = divide<T>(scaled_exp<O>(minus_largest(x, e), bias), d[e], r[e]);
    }
  });
}

void launch_columns(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, in, out, [&]<class T, class O>(const T* x, O* y) {
    const ColumnsShared<T> places(plan, plan.aligned && plan.columns % Pack<T>::kCount == 0 && aligned16(in, out));
    Grid grid = grid_of(plan);
    grid.shared_bytes = static_cast<std::size_t>(places.bytes);
    allow_all_shared<softmax_columns<T, O>>();
    enqueue(softmax_columns<T, O>, grid, stream, plan, places, x, x + plan.last + 1, y);
  });
}

}  // namespace xgemm::softmax
