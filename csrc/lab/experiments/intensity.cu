// Operational intensity: a copy that performs `steps` multiply-adds y <- y b + c on each element between
// load and store.
//
// b is close to -1, so that y changes its sign with each step and does not converge. Work 2 steps n operations, traffic 2
// sizeof(T) n bytes: steps / sizeof(T) operations a byte, so that `steps` moves the kernel along the roofline from memory bound
// to arithmetic bound. Each thread holds 32 bytes of elements: 8 chains in float, 4 in double, and two loads of 16 bytes in
// flight. n is a multiple of 16 / sizeof(T). Floor: max(bytes / bandwidth, operations / rate).
#include "device/vector.cuh"
#include "lab/experiments/experiments.h"

namespace xgemm::lab::experiments {

constexpr int kIntensityLoads = 2;

template <class T>
__global__ void __launch_bounds__(kThreads) intensity_kernel(const T* in, T* out, std::int64_t vectors, int steps, T b, T c) {
  using V = Vector<T, kVectorWidth<T>>;
  const V* from = reinterpret_cast<const V*>(in);
  V* to = reinterpret_cast<V*>(out);
  const std::int64_t base = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kIntensityLoads) + threadIdx.x;
  V y[kIntensityLoads] = {};
#pragma unroll
  for (int k = 0; k < kIntensityLoads; ++k)
    if (base + k * kThreads < vectors) y[k] = from[base + k * kThreads];
#pragma unroll 8
  for (int step = 0; step < steps; ++step)
#pragma unroll
    for (int k = 0; k < kIntensityLoads; ++k)
#pragma unroll
      for (int j = 0; j < kVectorWidth<T>; ++j) y[k][j] = fma(y[k][j], b, c);
#pragma unroll
  for (int k = 0; k < kIntensityLoads; ++k)
    if (base + k * kThreads < vectors) to[base + k * kThreads] = y[k];
}

const NameKernel named_float("intensity float", intensity_kernel<float>, kThreads),
    named_double("intensity double", intensity_kernel<double>, kThreads);

}  // namespace xgemm::lab::experiments
