// The second pass of a softmax whose rows do not stay on chip: exp(x - m) / d with each row's (m, d) from the reduction.
//
// Layouts: as softmax_rows and softmax_columns; any length. Architectures: sm_80 and later.
// Floor: one read and one write, after the first pass's read.
#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

/// A thread takes kApplyVectors vectors: every plan.tiles-th of a row, or the same columns at kApplyVectors positions.
template <class T, class O>
__global__ void __launch_bounds__(256, sizeof(T) == 4 ? 4 : 3)
    softmax_apply(const __grid_constant__ Arguments plan, const T* __restrict__ in, O* __restrict__ out,
                  const Value<T>* __restrict__ pairs) {
  using V = Value<T>;
  constexpr int kWidth = Pack<T>::kCount, kLoads = 4;
  ptx::grid_release();
  in = ptx::grid_wait(in);
  pairs = ptx::grid_wait(pairs);
  const bool rows = plan.columns == 1;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t line = plan.by_tiles.divide(index), at = (index - line * plan.tiles) * kWidth;
  const std::int64_t outer = rows ? line : plan.by_cells.divide(line);
  if (outer >= plan.outer) return;
  const std::int64_t inner = rows ? plan.length : plan.columns;
  const std::int64_t n = rows ? 0 : (line - outer * static_cast<std::int64_t>(plan.by_cells.divisor)) * kApplyVectors;
  const std::int64_t step = rows ? plan.tiles * kWidth : plan.length_stride, out_step = rows ? step : inner;
  const std::int64_t left = rows ? (inner - at + step - 1) / step : plan.length - n;
  const int pieces = static_cast<int>(min(left, static_cast<std::int64_t>(kApplyVectors)));
  const T* p = in + plan.kept.offset(outer) + n * plan.length_stride + at;
  O* q = out + (rows ? outer : outer * plan.length + n) * inner + at;
  const bool aligned = plan.aligned && misalignment(in) == 0;
  // Elements of piece k that are in bounds.
  const auto count_of = [&](int k) {
    return static_cast<int>(min(static_cast<std::int64_t>(kWidth), inner - at - (rows ? k * step : 0)));
  };

  V m[kWidth], d[kWidth], r[kWidth];
#pragma unroll
  for (int e = 0; e < kWidth; ++e) {
    const std::int64_t pair = rows ? outer : outer * plan.columns + at + min(e, count_of(0) - 1);
    m[e] = pairs[2 * pair];
    d[e] = pairs[2 * pair + 1];
    if (m[e] == minus_infinity<V>() || m[e] == -minus_infinity<V>()) d[e] = m[e] - m[e];  // NaN, as in torch
    if constexpr (sizeof(O) == 2)
      if (!plan.log) d[e] *= V{1ull << 32} * V{1ull << 32};  // 2^kBias
    r[e] = plan.log ? log(d[e]) : V{1} / d[e];
  }
  for (int k = 0; k < pieces; k += kLoads, p += kLoads * step, q += kLoads * out_step) {
    Pack<T> packs[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      packs[j] = as_pack<T>(uint4{0, 0, 0, 0});
      if (k + j >= pieces) continue;
      const T* x = p + j * step;
      const int count = count_of(k + j);
      if (count == kWidth)
        packs[j] = as_pack<T>(aligned ? load_aligned16(x) : load_shifted16(x));
      else
        packs[j] = as_pack<T>(load_singles(x, count, uint4{}));
    }
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      if (k + j >= pieces) continue;
      V y[kWidth];
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        const V shifted = convert<V>(packs[j].values[e]) - m[e];
        y[e] = plan.log ? shifted - r[e] : divide<T>(scaled_exp<O>(shifted, kBias), d[e], r[e]);
      }
      O* to = q + j * out_step;
      const int count = count_of(k + j);
      if (count == kWidth && misalignment(to) == 0)
        store_aligned<T>(to, y);
      else
        store_singles(to, y, count);
    }
  }
}

void launch_apply(const Plan& plan, const void* in, void* out, const void* pairs, cudaStream_t stream) {
  dispatch(plan, in, out, [&]<class T, class O>(const T* x, O* y) {
    enqueue(softmax_apply<T, O>, grid_of(plan), stream, plan, x, y, static_cast<const Value<T>*>(pairs));
  });
}

}  // namespace xgemm::softmax
