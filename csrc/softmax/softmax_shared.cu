// Softmax of rows that stay in shared memory of a warp, a CTA, or a cluster of up to 16 CTAs.
//
// A bulk copy loads a part of a row, except for up to 15 bytes at each end that share 16 bytes with other data. The part keeps
// its misalignment in shared memory, and threads read 4 bytes (8 in fp64) at a time: which thread reads which element does not
// depend on the row's address, and an odd address costs next to nothing. Many parts fit an SM: while one is computed, the
// others' copies are in flight.
// Layouts: rows of stride 1 at any address; output contiguous; any alignment.
// Limits: 16 CTAs x the shared memory of a CTA. Architectures: sm_90 (bulk copies, clusters).
// Floor: one read, one write; three passes over shared memory (maximum, sum, result); 14 instructions per 16-bit element.
#include "device/ptx/bulk_copy.cuh"
#include "device/ptx/cluster.cuh"
#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

/// f(i, j) for i = threadIdx.x, + kThreads, ... below n; j counts 0 to 7 within an unrolled round. kCounts: also in the last,
/// incomplete round.
template <int kThreads, bool kCounts = false, class F>
__device__ __forceinline__ void each_unit(int n, F f) {
  constexpr int kUnroll = 8;
  int i = static_cast<int>(threadIdx.x);
  for (; i + (kUnroll - 1) * kThreads < n; i += kUnroll * kThreads) {
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) f(i + j * kThreads, j);
  }
  if constexpr (kCounts) {
#pragma unroll
    for (int j = 0; j < kUnroll - 1; ++j)
      if (i + j * kThreads < n) f(i + j * kThreads, j);
  } else {
#pragma unroll 1
    for (; i < n; i += kThreads) f(i, 0);
  }
}

/// Of the threads that share a part.
template <int kThreads>
__device__ __forceinline__ void sync() {
  kThreads == kWarpSize ? __syncwarp() : __syncthreads();
}

/// The units of a part in shared memory that starts at any multiple of sizeof(T).
template <class T, bool kOdd>
struct Staged {
  Unit<T>* words;  // kOdd: the part starts in the middle of the first
  __device__ __forceinline__ Unit<T> get(int i) const {
    if constexpr (kOdd) return __byte_perm(words[i], words[i + 1], 0x5432);
    return words[i];
  }
  /// The same without reading a neighbouring unit, which another thread may set() meanwhile.
  __device__ __forceinline__ Unit<T> get_alone(int i) const {
    if constexpr (kOdd) {
      const auto* halves = reinterpret_cast<const unsigned short*>(words) + 2 * i;
      return __byte_perm(halves[1], halves[2], 0x5410);
    }
    return words[i];
  }
  __device__ __forceinline__ void set(int i, Unit<T> unit) const {
    if constexpr (kOdd) {
      auto* halves = reinterpret_cast<unsigned short*>(words) + 2 * i;
      halves[1] = static_cast<unsigned short>(unit);
      halves[2] = static_cast<unsigned short>(unit >> 16);
    } else {
      words[i] = unit;
    }
  }
};

/// The whole 16-byte blocks between `first` and `last`, which a bulk copy can take.
struct Interior {
  const char *from, *to;
  __device__ __forceinline__ std::uint32_t bytes() const { return to > from ? static_cast<std::uint32_t>(to - from) : 0; }
};

/// f(e) for each of `count` elements from `first` on that is not in the interior.
template <int kThreads, class T, class F>
__device__ __forceinline__ void each_edge(const T* first, int count, const Interior& interior, F f) {
  const int head =
      min(count, static_cast<int>((interior.from - reinterpret_cast<const char*>(first)) / static_cast<int>(sizeof(T))));
  const int end = static_cast<int>((interior.to - reinterpret_cast<const char*>(first)) / static_cast<int>(sizeof(T)));
  const int thread = static_cast<int>(threadIdx.x), tail = max(max(head, end), 0) + thread;
  if (thread < head) f(thread);
  if (thread < 16 && tail < count) f(tail);
}

/// The maximum m and the sum of e^(x - m) of a row or of a part of it.
template <class V>
struct Totals {
  V maximum, sum;
};

/// Joins them over the CTAs of a cluster: each sends its own to all CTAs and waits until `all` has received the expected bytes.
template <class V>
__device__ __forceinline__ Totals<V> join_blocks(const Totals<V>& mine, int cluster, unsigned rank, Totals<V>* slots,
                                                 ptx::Barrier* all) {
  if (static_cast<int>(threadIdx.x) < cluster) {
    ptx::store_async(&slots[rank].maximum, as_unit(mine.maximum), all, threadIdx.x);
    ptx::store_async(&slots[rank].sum, as_unit(mine.sum), all, threadIdx.x);
  }
  ptx::barrier_wait(all, 0);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const Totals<V> part = lane < cluster ? slots[lane] : Totals<V>{minus_infinity<V>(), V{0}};
  const V m = warp_reduce(part.maximum, [](V a, V b) { return larger(a, b); });
  const V sum = part.maximum == minus_infinity<V>() ? V{0} : part.sum * exp_of(part.maximum - m);
  return {m, warp_reduce(sum, [](V a, V b) { return a + b; })};
}

/// Starts the copy of a part x[0..count - 1] of the row x_row to shared memory, which keeps its misalignment: the aligned blocks
/// whose bytes all belong to the row by one bulk copy, other elements by threads. prepare() initialises `loaded`.
template <int kThreads, class T, class F>
__device__ __forceinline__ void load_part(const T* x_row, std::int64_t length, const T* x, int count, bool first, char* buffer,
                                          ptx::Barrier* loaded, const F& prepare) {
  const unsigned shift = misalignment(x);
  T* const part = reinterpret_cast<T*>(buffer + shift);
  const char *begin = reinterpret_cast<const char*>(x) - shift, *end = reinterpret_cast<const char*>(x + count),
             *row_end = reinterpret_cast<const char*>(x_row + length);
  Interior interior{first && shift != 0 ? begin + 16 : begin, end + (-misalignment(end) & 15u)};
  if (interior.to > row_end) interior.to = row_end - misalignment(row_end);
  if (threadIdx.x == 0) {
    prepare();
    ptx::barrier_arrive_expect(loaded, interior.bytes());
    if (interior.bytes() > 0) ptx::bulk_load(buffer + (interior.from - begin), interior.from, interior.bytes(), loaded);
  }
  each_edge<kThreads>(x, count, interior, [&](int e) { part[e] = x[e]; });
  if (count % kUnitCount<T> != 0 && threadIdx.x == kThreads - 1) part[count] = convert<T>(-INFINITY);
}

/// Joins one value per thread over the threads that share a part.
template <int kThreads, class V, class F>
__device__ __forceinline__ V join_threads(V value, V identity, V* warps, F op) {
  value = warp_reduce(value, op);
  if constexpr (kThreads > kWarpSize) return join_warps(value, identity, kThreads / kWarpSize, warps, op);
  __syncwarp();  // all lanes have read before the next pass writes
  return value;
}

/// A thread's sum of e^(x - m). In fp32 and fp64 a softmax's exponentials replace their elements.
template <class O, int kThreads, bool kLog, class T, bool kOdd, class V>
__device__ __forceinline__ V sum_exponentials(const Staged<T, kOdd>& staged, int units, V m, V bias) {
  constexpr int kPer = kUnitCount<T>;
  V sums[4] = {};
  each_unit<kThreads, kThreads == kWarpSize>(units, [&](int i, int j) {
    const Unit<T> unit = staged.get(i);
#pragma unroll
    for (int e = 0; e < kPer; ++e) {
      const V x = element<T>(unit, e) - m, t = kLog ? exp_of(x) : scaled_exp<O>(x, bias);
      V& sum = sums[(j * kPer + e) % 4];
      sum = add(sum, t);
      if constexpr (std::is_same_v<T, V> && !kLog) staged.set(i, as_unit(t));
    }
  });
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

/// Stores a part's results at y; result(unit, e) computes that of element e of a unit.
template <int kThreads, bool kOdd, class T, class O, class F>
__device__ __forceinline__ void store_part(const Staged<T, kOdd>& staged, char* buffer, unsigned shift, O* y, int count,
                                           const F& result) {
  constexpr int kPer = kUnitCount<T>;
  const int units = (count + kPer - 1) / kPer;
  if constexpr (std::is_same_v<T, O>) {
    // At odd addresses a bulk copy stores faster than threads do; at others it only delays the CTA.
    if (shift != 0 && misalignment(y) == shift) {
      T* const part = reinterpret_cast<T*>(buffer + shift);
      each_unit<kThreads>(units, [&](int i, int) {
        const Unit<T> unit = staged.get_alone(i);
        if constexpr (kPer == 2)
          staged.set(i, pack_pair<O>(result(unit, 0), result(unit, 1)));
        else
          staged.set(i, as_unit(result(unit, 0)));
      });
      ptx::fence_async_shared();
      sync<kThreads>();
      const char* end = reinterpret_cast<const char*>(y + count);
      const Interior interior{reinterpret_cast<const char*>(y) - shift + 16, end - misalignment(end)};
      each_edge<kThreads>(y, count, interior, [&](int e) { y[e] = part[e]; });
      if (threadIdx.x == 0 && interior.bytes() > 0) {
        ptx::bulk_store(const_cast<char*>(interior.from), buffer + 16, interior.bytes());
        ptx::tma_store_commit();
        ptx::tma_store_wait_read<0>();
      }
      return;
    }
  }
  if constexpr (kPer == 1) {
    each_unit<kThreads>(units, [&](int i, int) { y[i] = result(staged.get(i), 0); });
  } else {
    if (reinterpret_cast<std::uintptr_t>(y) % (2 * sizeof(O)) == 0) {
      each_unit<kThreads>(count / 2, [&](int i, int) {
        const Unit<T> unit = staged.get(i);
        const auto a = result(unit, 0), b = result(unit, 1);
        if constexpr (sizeof(O) == 2)
          *reinterpret_cast<unsigned*>(y + 2 * i) = pack_pair<O>(a, b);
        else
          *reinterpret_cast<float2*>(y + 2 * i) = {a, b};
      });
    } else {
      each_unit<kThreads>(count / 2, [&](int i, int) {
        const Unit<T> unit = staged.get(i);
        y[2 * i] = convert<O>(result(unit, 0));
        y[2 * i + 1] = convert<O>(result(unit, 1));
      });
    }
    if (count % 2 != 0 && threadIdx.x == 0) y[count - 1] = convert<O>(result(staged.get(count / 2), 0));
  }
}

/// kThreads threads (threadIdx.x) share a part: a warp per row and blockDim.y rows per CTA, or a CTA.
template <class T, class O, int kThreads>
__global__ void __launch_bounds__(kThreads == kWarpSize ? kShortRowThreads : kThreads)
    softmax_shared([[maybe_unused]] const __grid_constant__ Rows rows, [[maybe_unused]] const __grid_constant__ IndexMap map,
                   [[maybe_unused]] const T* __restrict__ in, [[maybe_unused]] O* __restrict__ out) {
#if __CUDA_ARCH__ >= 900
  using V = Value<T>;
  constexpr int kPer = kUnitCount<T>;
  constexpr bool kWarp = kThreads == kWarpSize, kInPlace = std::is_same_v<T, V>;
  extern __shared__ __align__(128) char shared[];
  __shared__ V warps[2][kWarpSize];
  __shared__ Totals<V> slots[kMaxClusterBlocks];
  __shared__ ptx::Barrier barriers[kShortRowThreads / kWarpSize], exchanged;

  const int group = kWarp ? static_cast<int>(threadIdx.y) : 0;
  const int cluster = kWarp ? 1 : rows.cluster;
  const unsigned rank = kWarp ? 0 : ptx::cluster_rank();
  const std::int64_t row = kWarp ? static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y : ptx::cluster_index();
  if (kWarp && row >= rows.outer) return;
  char* buffer = shared + group * (rows.chunk * 16 + 32);
  ptx::Barrier& loaded = barriers[group];

  const std::int64_t first = static_cast<std::int64_t>(rank) * rows.chunk * Pack<T>::kCount;
  const int count = static_cast<int>(min(static_cast<std::int64_t>(rows.chunk) * Pack<T>::kCount, rows.length - first));
  const T* x_row = in + map.offset(row);
  const T* x = x_row + first;
  const unsigned shift = misalignment(x);
  ptx::grid_release();
  x = ptx::grid_wait(x);
  load_part<kThreads>(x_row, rows.length, x, count, rank == 0, buffer, &loaded, [&] {
    ptx::barrier_init(&loaded, 1);
    if constexpr (!kWarp) ptx::barrier_init(&exchanged, 1);
    ptx::fence_barrier_init();
    if constexpr (!kWarp)
      ptx::barrier_arrive_expect(&exchanged, static_cast<std::uint32_t>(cluster) * static_cast<std::uint32_t>(sizeof(Totals<V>)));
  });
  if (cluster > 1) ptx::cluster_arrive_relaxed();
  sync<kThreads>();
  ptx::barrier_wait(&loaded, 0);

  const int units = (count + kPer - 1) / kPer;
  const auto compute = [&]<bool kOdd>(std::bool_constant<kOdd>) {
    const Staged<T, kOdd> staged{reinterpret_cast<Unit<T>*>(buffer + (kOdd ? shift - 2 : shift))};
    Largest<T> largest[2];
    each_unit<kThreads>(units, [&](int i, int j) { largest[j % 2].add(staged.get(i)); });
    largest[0].add(largest[1].m);
    Totals<V> all{
        join_threads<kThreads>(largest[0].value(), minus_infinity<V>(), warps[0], [](V a, V b) { return larger(a, b); }), 0};

    const V bias = rows.log ? 0 : kBias, own = all.maximum == minus_infinity<V>() ? V{0} : all.maximum;
    const V sum = rows.log ? sum_exponentials<O, kThreads, true>(staged, units, own, bias)
                           : sum_exponentials<O, kThreads, false>(staged, units, own, bias);
    all.sum = join_threads<kThreads>(sum, V{0}, warps[1], [](V a, V b) { return a + b; });
    // The CTAs of a cluster exchange maximum and sum once; until then terms are relative to their own CTA's maximum.
    V scale = 1;
    if (cluster > 1) {
      ptx::cluster_wait();  // the other CTAs' barriers are initialised
      const V of_block = all.maximum;
      all = join_blocks(all, cluster, rank, slots, &exchanged);
      scale = scaled_exp<V>(of_block - all.maximum, V{0});
    }
    const V m = all.maximum, d = all.sum, r = rows.log ? V{0} : V{1} / d, log_d = rows.log ? log(d) : V{0};
    O* y = out + row * rows.length + first;
    const auto finish = [&]<bool kLog>(std::bool_constant<kLog>) {
      const auto result = [&](Unit<T> unit, int e) {
        const V v = element<T>(unit, e);
        if constexpr (kLog) return v - m - log_d;
        return divide<T>(kInPlace ? v * scale : scaled_exp<O>(v - m, bias), d, r);
      };
      store_part<kThreads>(staged, buffer, shift, y, count, result);
    };
    if (rows.log)
      finish(std::true_type{});
    else
      finish(std::false_type{});
  };
  if constexpr (sizeof(T) == 2)
    if (shift % 4 != 0) return compute(std::true_type{});
  compute(std::false_type{});
#endif
}

void launch_shared(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, in, out, [&]<class T, class O>(const T* x, O* y) {
    Grid grid = grid_of(plan);
    grid.threads = dim3(static_cast<unsigned>(plan.lanes), static_cast<unsigned>(plan.threads / plan.lanes));
    grid.shared_bytes = grid.threads.y * (static_cast<std::size_t>(plan.chunk) * 16 + 32);
    const auto go = [&]<auto kKernel>() {
      allow_all_shared<kKernel>();
      enqueue(kKernel, grid, stream, rows_of(plan), plan.kept, x, y);
    };
    if (plan.lanes == kWarpSize) return go.template operator()<softmax_shared<T, O, kWarpSize>>();
    go.template operator()<softmax_shared<T, O, kBlockThreads>>();
  });
}

}  // namespace xgemm::softmax
