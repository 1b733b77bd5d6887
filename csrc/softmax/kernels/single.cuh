// Softmax over one element, at the speed of a copy: 1 (log: 0), and NaN for NaN and infinities.
//
// Layouts: contiguous input of any alignment, contiguous output. Architectures: sm_80 and later. Limits: none.
// Floor: one read, one write; two 16-byte loads of a thread are in flight.
#pragma once
#include "device/ptx/grid.cuh"
#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

template <class T, class O>
__global__ void __launch_bounds__(kSingleThreads)
    softmax_single(std::int64_t count, bool log, const T* __restrict__ in, O* __restrict__ out) {
  using V = Value<T>;
  constexpr int kWidth = Pack<T>::kCount, kStep = kSingleThreads * kWidth;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (kSingleSteps * kStep) + threadIdx.x * kWidth;
  ptx::grid_release();
  in = ptx::grid_wait(in);
  const V one = log ? V{0} : V{1};
  const auto result = [one](T x) { return convert<V>(x) - convert<V>(x) + one; };
  uint4 raw[kSingleSteps] = {};
#pragma unroll
  for (int j = 0; j < kSingleSteps; ++j)
    if (first + j * kStep + kWidth <= count) raw[j] = load_shifted16(in + first + j * kStep);
#pragma unroll
  for (int j = 0; j < kSingleSteps; ++j) {
    const std::int64_t at = first + j * kStep;
    if (at + kWidth <= count) {
      const Pack<T> x = as_pack<T>(raw[j]);
      V y[kWidth];
#pragma unroll
      for (int e = 0; e < kWidth; ++e) y[e] = result(x.values[e]);
      store_aligned<T>(out + at, y);
    } else {
      for (std::int64_t i = at; i < count; ++i) out[i] = convert<O>(result(in[i]));
    }
  }
}

}  // namespace xgemm::softmax
