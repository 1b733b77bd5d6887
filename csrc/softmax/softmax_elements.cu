// Softmax of few elements, or of rows that are not whole 16-byte vectors, one element an access: [outer, length, columns], rows
// being columns of a group of one. 1 to 1024 threads share a column, whose elements stay in their registers.
//
// A short launch waits for its instructions, of which this kernel has few. Many short rows side by side would wait for them, too:
// softmax_packed takes such rows from shared memory, one after another.
// Element i of a column belongs to lane i % lanes. Order of additions: the elements of a lane, the lanes of a warp as a tree, the
//   warps in order.
// Layouts: columns have stride 1, positions and groups any one stride; output contiguous; any alignment.
// Architectures: sm_80 and later. Limits: lanes * kCount positions; fewer than 2^31 columns, but any number of rows. Floor: one
// read, one write.
#include <bit>

#include "device/integer.h"
#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

struct Elements {
  std::int64_t count, stride, length_stride;  ///< columns in all; input's distance of groups, of positions
  int columns, length, steps;                 ///< of a group; positions, and those of a lane
  ShortDivider by_columns;
  int log2_beside, log2_lanes;  ///< neighbouring threads hold `beside` columns, `lanes` such groups of threads share them
  bool log;
};

/// All threads of an SM for the fewer elements, 1536 for more.
template <class T, int kCount>
inline constexpr int kElementRegisters = sizeof(T) == 8       ? 64
                                         : kCount > kElements ? 40
                                                              : 32;

template <class T, class O, int kCount>
__global__ void __maxnreg__((kElementRegisters<T, kCount>))
    softmax_elements(const __grid_constant__ Elements plan, const T* __restrict__ in, O* __restrict__ out) {
  using V = Value<T>;
  extern __shared__ __align__(16) unsigned char element_memory[];
  const int thread = static_cast<int>(threadIdx.x), beside = 1 << plan.log2_beside, lanes = 1 << plan.log2_lanes;
  const int lane = thread >> plan.log2_beside & (lanes - 1), own = thread & (beside - 1);
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * (static_cast<int>(blockDim.x) >> plan.log2_lanes) +
                         (thread >> (plan.log2_beside + plan.log2_lanes) << plan.log2_beside) + own;
  const bool exists = i < plan.count;
  const std::int64_t group = plan.columns == 1 ? i : plan.by_columns.divide(static_cast<int>(i)),
                     column = i - group * plan.columns;
  const int held = exists ? (plan.length - lane + lanes - 1) >> plan.log2_lanes : 0;  // elements of this thread
  const T* p = in + (held > 0 ? group * plan.stride + lane * plan.length_stride + column : 0);
  O* q = out + (group * plan.length + lane) * plan.columns + column;
  const std::int64_t step = plan.length_stride << plan.log2_lanes, out_step = static_cast<std::int64_t>(plan.columns)
                                                                              << plan.log2_lanes;
  ptx::grid_release();
  p = ptx::grid_wait(p);

  V x[kCount];
#pragma unroll
  for (int k = 0; k < kCount; ++k, p += step) x[k] = k < held ? convert<V>(*p) : minus_infinity<V>();
  const auto join = [&](V value, int which, auto op) {
    for (int offset = beside; offset < min(beside * lanes, kWarpSize); offset *= 2)
      value = op(value, __shfl_xor_sync(kFullWarp, value, offset));
    if (lanes == 1 || beside * lanes <= kWarpSize) return value;
    const int warps = static_cast<int>(blockDim.x) / kWarpSize;
    V* const values = reinterpret_cast<V*>(element_memory) + which * warps * beside;
    if (thread % kWarpSize < beside) values[thread / kWarpSize * beside + own] = value;
    __syncthreads();
    const V* other = values + own;
    value = *other;
#pragma unroll 4
    for (int w = 1; w < warps; ++w) value = op(value, *(other += beside));
    return value;
  };
  V m = x[0];
#pragma unroll
  for (int k = 1; k < kCount; ++k) m = larger(m, x[k]);
  m = join(m, 0, [](V a, V b) { return larger(a, b); });

  V terms[kCount] = {};
  const auto total = [&](const Exponentials<O, V>& exponential) {
    V sum = 0;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      if (k >= kElements && k >= plan.steps) continue;
      terms[k] = exponential(x[k]);
      sum = add(sum, terms[k]);
    }
    return join(sum, 1, [](V a, V b) { return add(a, b); });
  };
  const auto store = [&](auto result) {
#pragma unroll
    for (int k = 0; k < kCount; ++k, q += out_step)
      if (k < held) *q = convert<O>(result(k));
  };
  if (plan.log) {
    const V log_d = log(total(Exponentials<O, V>(m, true)));
    store([&](int k) { return x[k] - m - log_d; });
    return;
  }
  const V d = total(Exponentials<O, V>(m, false)), r = reciprocal<O>(d);
  store([&](int k) { return divide<T>(terms[k], d, r); });
}

namespace {

/// Rows of kLength elements, which divide a 16-byte vector: thread i's vector, or the last elements.
template <int kLength, class T>
__device__ __forceinline__ void write_vector(const T* __restrict__ in, T* __restrict__ out, std::int64_t count, std::int64_t i,
                                             bool log_softmax) {
  using V = Value<T>;
  constexpr int kWidth = Pack<T>::kCount;
  const auto write = [&](T* x) {  // a row
    V m = convert<V>(x[0]), terms[kLength], d = 0;
#pragma unroll
    for (int k = 1; k < kLength; ++k) m = larger(m, convert<V>(x[k]));
    const Exponentials<T, V> exponential(m, log_softmax);
#pragma unroll
    for (int k = 0; k < kLength; ++k) d = add(d, terms[k] = exponential(convert<V>(x[k])));
    const V log_d = log_softmax ? log(d) : V{0}, r = reciprocal<T>(d);
#pragma unroll
    for (int k = 0; k < kLength; ++k) x[k] = convert<T>(log_softmax ? convert<V>(x[k]) - m - log_d : divide<T>(terms[k], d, r));
  };
  const std::int64_t first = i * kWidth;
  if (first + kWidth <= count) {
    Pack<T> pack = as_pack<T>(load_aligned16(in + first));
#pragma unroll
    for (int e = 0; e < kWidth; e += kLength) write(pack.values + e);
    *reinterpret_cast<uint4*>(out + first) = as_raw(pack);
    return;
  }
#pragma unroll 1
  for (std::int64_t k = first; k < count; k += kLength) {
    T row[kLength];
#pragma unroll
    for (int e = 0; e < kLength; ++e) row[e] = in[k + e];
    write(row);
#pragma unroll
    for (int e = 0; e < kLength; ++e) out[k + e] = row[e];
  }
}

/// Rows of 1 or 2 elements, or 4 of 16 bits: a vector a thread. `in` and `out` are contiguous and aligned to 16 bytes.
template <class T>
__global__ void __launch_bounds__(kElementThreads)
    softmax_vectors(const T* __restrict__ in, T* __restrict__ out, std::int64_t count, int length, bool log_softmax) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kElementThreads + threadIdx.x;
  ptx::grid_release();
  in = ptx::grid_wait(in);
  if (length == 1) return write_vector<1>(in, out, count, i, log_softmax);
  if (length == 2) return write_vector<2>(in, out, count, i, log_softmax);
  if constexpr (sizeof(T) == 2) write_vector<4>(in, out, count, i, log_softmax);
}

/// Many rows of up to kPackedBytes / kPackedThreads bytes that lie side by side, in and out from a multiple of 16 bytes on: a CTA
/// copies `rows_of_cta` of them to shared memory in 16-byte vectors, its threads take rows in turn, and vectors go back.
template <class T>
__global__ void __launch_bounds__(kPackedThreads) softmax_packed(const T* __restrict__ in, T* __restrict__ out, std::int64_t rows,
                                                                 int rows_of_cta, int length, bool log_softmax) {
  using V = Value<T>;
  constexpr int kWidth = Pack<T>::kCount, kVectors = kPackedBytes / 16 / kPackedThreads;  // of a thread, all in flight
  __shared__ __align__(16) T elements[kPackedBytes / sizeof(T)];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * rows_of_cta;
  const int thread = static_cast<int>(threadIdx.x),
            here = static_cast<int>(min(static_cast<std::int64_t>(rows_of_cta), rows - first)), count = here * length,
            whole = count / kWidth, rest = whole * kWidth + thread;  // the last CTA's last elements are less than a vector
  ptx::grid_release();
  in = ptx::grid_wait(in) + first * length, out += first * length;
  uint4 vectors[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    if (thread + i * kPackedThreads < whole) vectors[i] = load_aligned16(in + (thread + i * kPackedThreads) * kWidth);
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    if (thread + i * kPackedThreads < whole) reinterpret_cast<uint4*>(elements)[thread + i * kPackedThreads] = vectors[i];
  if (rest < count) elements[rest] = in[rest];
  __syncthreads();
  for (int row = thread; row < here; row += kPackedThreads) {
    T* const x = elements + row * length;
    const auto each = [&](const auto& f) {
#pragma unroll 4
      for (int k = 0; k < length; ++k) f(k, convert<V>(x[k]));
    };
    V m = minus_infinity<V>(), d = 0;
    each([&](int, V v) { m = larger(m, v); });
    const Exponentials<T, V> exponential(m, log_softmax);
    each([&](int, V v) { d = add(d, exponential(v)); });
    if (log_softmax) {
      const V log_d = log(d);
      each([&](int k, V v) { x[k] = convert<T>(v - m - log_d); });
    } else {
      const V r = reciprocal<T>(d);
      each([&](int k, V v) { x[k] = convert<T>(divide<T>(exponential(v), d, r)); });
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    if (thread + i * kPackedThreads < whole)
      *reinterpret_cast<uint4*>(out + (thread + i * kPackedThreads) * kWidth) =
          reinterpret_cast<const uint4*>(elements)[thread + i * kPackedThreads];
  if (rest < count) out[rest] = elements[rest];
}

}  // namespace

void launch_elements(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, in, out, [&]<class T, class O>(const T* x, O* y) {
    const int length = static_cast<int>(plan.length);
    if constexpr (std::is_same_v<T, O>) {
      const bool in_vectors = length <= 2 || (length == 4 && sizeof(T) == 2);
      if (in_vectors && aligned16(in, out) && plan.columns == 1 && (plan.outer == 1 || plan.kept.stride[0] == plan.length)) {
        const std::int64_t count = plan.outer * plan.length, vectors = ceil_div(count, std::int64_t{Pack<T>::kCount});
        const Grid grid = early_grid(ceil_div(vectors, std::int64_t{kElementThreads}), kElementThreads);
        return enqueue(softmax_vectors<T>, grid, stream, x, y, count, length, plan.log);
      }
      if constexpr (sizeof(T) < 8)
        if (plan.packed > 0 && aligned16(in, out)) {
          const Grid grid = early_grid(ceil_div(plan.outer, std::int64_t{plan.packed}), kPackedThreads);
          return enqueue(softmax_packed<T>, grid, stream, x, y, plan.outer, plan.packed, length, plan.log);
        }
    }
    const Elements elements{.count = plan.outer * plan.columns,
                            .stride = plan.kept.stride[0],
                            .length_stride = plan.length_stride,
                            .columns = static_cast<int>(plan.columns),
                            .length = length,
                            .steps = plan.steps,
                            .by_columns = ShortDivider::of(plan.columns),
                            .log2_beside = std::countr_zero(static_cast<unsigned>(plan.beside)),
                            .log2_lanes = std::countr_zero(static_cast<unsigned>(plan.lanes)),
                            .log = plan.log};
    Grid grid = grid_of(plan);
    if (plan.lanes * plan.beside > kWarpSize)  // several warps share columns: two values for each of a warp's
      grid.shared_bytes = static_cast<std::size_t>(2 * plan.threads / kWarpSize * plan.beside) * sizeof(Value<T>);
    enqueue(plan.steps <= kElements ? softmax_elements<T, O, kElements> : softmax_elements<T, O, 2 * kElements>, grid, stream,
            elements, x, y);
  });
}

}  // namespace xgemm::softmax
