// Softmax of few elements, or of rows that are not whole 16-byte vectors, one element an access: [outer, length, columns], rows
// being columns of a group of one. 1 to 1024 threads share a column, whose elements stay in their registers.
//
// A short launch waits for its instructions, of which this kernel has few.
// Element i of a column belongs to lane i % lanes. Order of additions: the elements of a lane, the lanes of a warp as a tree, the
//   warps in order.
// Layouts: columns have stride 1, positions and groups any one stride; output contiguous; any alignment.
// Architectures: sm_80 and later. Limits: lanes * kCount positions; fewer than 2^31 columns, but any number of rows. Floor: one
// read, one write.
#include <bit>

#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

struct Elements {
  std::int64_t count, stride, length_stride;  ///< columns in all; input's distance of groups, of positions
  int columns, length, steps;                 ///< of a group; positions, and those of a lane
  ShortDivider by_columns;
  int log2_beside, log2_lanes;  ///< neighbouring threads hold `beside` columns, `lanes` such groups of threads share them
  bool log;
};

/// Shared memory: two values for each of a warp's columns if several warps share them.
template <class V>
std::size_t element_bytes(const Plan& plan) {
  if (plan.lanes * plan.beside <= kWarpSize) return 0;
  return static_cast<std::size_t>(2 * plan.threads / kWarpSize * plan.beside) * sizeof(V);
}

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

/// Thread i's vector of softmax_ones.
template <class T>
__device__ __forceinline__ void write_ones(const T* __restrict__ in, T* __restrict__ out, std::int64_t count, std::int64_t i,
                                           bool log) {
  constexpr int kWidth = Pack<T>::kCount;
  const std::int64_t first = i * kWidth;
  const Value<T> one = log ? 0 : 1;
  const auto result = [&](T x) { return convert<T>(convert<Value<T>>(x) - convert<Value<T>>(x) + one); };
  if (first + kWidth <= count) {
    Pack<T> pack = as_pack<T>(load_aligned16(in + first));
#pragma unroll
    for (int e = 0; e < kWidth; ++e) pack.values[e] = result(pack.values[e]);
    *reinterpret_cast<uint4*>(out + first) = as_raw(pack);
    return;
  }
#pragma unroll 1
  for (std::int64_t k = first; k < count; ++k) out[k] = result(in[k]);
}

/// Rows of one element, at copy speed: 1 (with `log` 0), or NaN where the element is infinite or NaN. `in` and `out` are
/// contiguous and aligned to 16 bytes; a vector a thread.
__global__ void __launch_bounds__(kElementThreads)
    softmax_ones(const void* __restrict__ in, void* __restrict__ out, std::int64_t count, DType dtype, bool log) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kElementThreads + threadIdx.x;
  ptx::grid_release();
  in = ptx::grid_wait(in);
  const auto write = [&]<class T>(Type<T>) { write_ones(static_cast<const T*>(in), static_cast<T*>(out), count, i, log); };
  switch (dtype) {
    case DType::f32: return write(Type<float>{});
    case DType::f16: return write(Type<half>{});
    case DType::bf16: return write(Type<bf16>{});
    default: write(Type<double>{});
  }
}

}  // namespace

void launch_elements(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    if constexpr (std::is_same_v<T, O>) {
      const bool addresses = (reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out)) % 16 == 0;
      if (plan.length == 1 && addresses && (plan.outer == 1 || plan.kept.stride[0] == 1)) {
        const std::int64_t threads = (plan.outer + Pack<T>::kCount - 1) / Pack<T>::kCount;
        const Grid grid{.blocks = dim3(static_cast<unsigned>((threads + kElementThreads - 1) / kElementThreads)),
                        .threads = dim3(kElementThreads),
                        .early = true};
        return enqueue(softmax_ones, grid, stream, in, out, plan.outer, plan.in, plan.log);
      }
    }
    const Elements elements{.count = plan.outer * plan.columns,
                            .stride = plan.kept.stride[0],
                            .length_stride = plan.length_stride,
                            .columns = static_cast<int>(plan.columns),
                            .length = static_cast<int>(plan.length),
                            .steps = plan.steps,
                            .by_columns = ShortDivider::of(plan.columns),
                            .log2_beside = std::countr_zero(static_cast<unsigned>(plan.beside)),
                            .log2_lanes = std::countr_zero(static_cast<unsigned>(plan.lanes)),
                            .log = plan.log};
    const auto go = [&](auto kernel) {
      launch_clusters(kernel, plan, dim3(static_cast<unsigned>(plan.threads)), element_bytes<Value<T>>(plan), stream, elements,
                      static_cast<const T*>(in), static_cast<O*>(out));
    };
    if (plan.steps <= kElements) return go(softmax_elements<T, O, kElements>);
    go(softmax_elements<T, O, 2 * kElements>);
  });
}

}  // namespace xgemm::softmax
