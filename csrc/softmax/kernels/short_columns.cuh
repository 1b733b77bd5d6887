// Softmax over a dim of a few positions that is not the fastest: [outer, length, columns]. A thread has a column in registers.
//
// The arithmetic and the order of additions are those of softmax_columns, which takes the same problems in 16-byte vectors; this
// kernel has a tenth of its instructions, which a short launch waits for, and no shifts where columns are unaligned.
// Layouts: columns have stride 1, positions and outer groups any stride; output contiguous; any alignment.
// Architectures: sm_80 and later. Limits: kShortPositions positions. Floor: one read, one write, one element an access.
#pragma once
#include "device/ptx/grid.cuh"
#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

struct ShortColumns {
  std::int64_t count, columns, length_stride;  ///< columns in all and of a group; input's distance of positions
  Divider by_columns;
  int length;
  bool log;
};

template <class T, class O>
__global__ void __launch_bounds__(kShortColumnThreads)
    softmax_short_columns(const __grid_constant__ ShortColumns plan, const __grid_constant__ IndexMap kept,
                          const T* __restrict__ in, O* __restrict__ out) {
  using V = Value<T>;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kShortColumnThreads + threadIdx.x;
  const std::int64_t outer = plan.by_columns.divide(i), column = i - outer * plan.columns;
  const int held = i < plan.count ? plan.length : 0;
  const T* p = in + (held > 0 ? kept.offset(outer) : 0) + column;
  O* q = out + outer * plan.length * plan.columns + column;
  ptx::grid_release();
  p = ptx::grid_wait(p);

  V x[kShortPositions], m = minus_infinity<V>();
#pragma unroll
  for (int k = 0; k < kShortPositions; ++k, p += plan.length_stride) x[k] = k < held ? convert<V>(*p) : minus_infinity<V>();
#pragma unroll
  for (const V value : x) m = larger(m, value);
  const V bias = plan.log ? 0 : kBias;
  V terms[kShortPositions], d = 0;
#pragma unroll
  for (int k = 0; k < kShortPositions; ++k) {
    terms[k] = scaled_exp<O>(x[k] - m, bias);
    d = add(d, terms[k]);
  }
  const V r = plan.log ? log(d) : reciprocal_for<T>(d);
#pragma unroll
  for (int k = 0; k < kShortPositions; ++k, q += plan.columns)
    if (k < held) *q = convert<O>(plan.log ? x[k] - m - r : divide<T>(terms[k], d, r));
}

}  // namespace xgemm::softmax
