// The second pass of a softmax whose rows do not stay on chip: exp(x - m) / d, given each row's (m, d) from the reduction.
//
// Layouts: as softmax_rows and softmax_columns; any length. Architectures: sm_80 and later. Floor: one read and one write beside the
// first pass's read.
#pragma once
#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

template <class T, class O>
__global__ void __launch_bounds__(256) softmax_apply(const __grid_constant__ Plan plan, const T* __restrict__ in,
                                                     O* __restrict__ out, const Value<T>* __restrict__ pairs) {
  using V = Value<T>;
  constexpr int kWidth = Pack<T>::kCount;
  const bool rows = plan.columns == 1;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t line = plan.by_tiles.divide(index), at = (index - line * plan.tiles) * kWidth;
  const std::int64_t outer = rows ? line : plan.by_length.divide(line), n = rows ? 0 : line - outer * plan.length;
  if (outer >= plan.outer) return;
  const std::int64_t inner = rows ? plan.length : plan.columns;
  const T* p = in + plan.kept.offset(outer) + n * plan.length_stride + at;
  O* q = out + line * inner + at;
  const int count = static_cast<int>(min(static_cast<std::int64_t>(kWidth), inner - at));

  Pack<T> pack = as_pack<T>(uint4{0, 0, 0, 0});
  if (count == kWidth) {
    pack = as_pack<T>(load_shifted16(p));
  } else {
#pragma unroll
    for (int e = 0; e < kWidth; ++e)
      if (e < count) pack.values[e] = p[e];
  }
  V y[kWidth];
#pragma unroll
  for (int e = 0; e < kWidth; ++e) {
    const std::int64_t pair = rows ? outer : outer * plan.columns + at + min(e, count - 1);
    const V m = pairs[2 * pair];
    V d = pairs[2 * pair + 1];
    if (m == minus_infinity<V>() || m == -minus_infinity<V>()) d = m - m;  // NaN, as torch has it
    const V shifted = convert<V>(pack.values[e]) - m;
    y[e] = plan.log ? shifted - log(d) : divide<T>(exp_for<O>(shifted), d, V{1} / d);
  }
  if (count == kWidth && misalignment(q) == 0) {
    store_aligned<T>(q, y);
  } else {
#pragma unroll
    for (int e = 0; e < kWidth; ++e)
      if (e < count) q[e] = convert<O>(y[e]);
  }
}

}  // namespace xgemm::softmax
