// Softmax of few elements, or of rows that are not whole 16-byte vectors, one element an access: [outer, length, columns], rows
// being columns of a group of one. 1 to 1024 threads share a column, whose elements stay in their registers.
//
// A short launch waits for its instructions, of which this kernel has few.
// Element i of a column belongs to lane i % lanes. Order of additions: the elements of a lane, the lanes of a warp as a tree, the
//   warps in order.
// Layouts: columns have stride 1, positions and groups any one stride; output contiguous; any alignment.
// Architectures: sm_80 and later. Limits: lanes * kCount positions; fewer than 2^31 columns, but any number of rows. Floor: one
// read, one write.
#pragma once
#include "device/ptx/grid.cuh"
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

}  // namespace xgemm::softmax
