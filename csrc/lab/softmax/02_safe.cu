// Safe softmax: m = max x; d = sum of exp(x - m); y = exp(x - m) / d.
//
// Three reads and one store an element: 16 bytes. No exponent is above 0, so nothing overflows, and d is at least 1.
// Limit: memory bandwidth, one more pass over the row than naive. What every framework computes.
#include "lab/kernels.h"
#include "lab/softmax/block_reduce.cuh"

namespace xgemm::lab::softmax {

__global__ void __launch_bounds__(kThreads) safe_kernel(const __grid_constant__ Problem p) {
  const float* x = p.x + blockIdx.x * p.cols;
  float* y = p.y + blockIdx.x * p.cols;
  Max m{-INFINITY};
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < p.cols; i += kThreads) m.value = fmaxf(m.value, x[i]);
  m = block_reduce(m);  // fmaxf passes over NaN; the sum below does not
  Sum d{0};
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < p.cols; i += kThreads) d.value += expf(x[i] - m.value);
  d = block_reduce(d);
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < p.cols; i += kThreads) y[i] = expf(x[i] - m.value) / d.value;
}

const NameKernel named_safe("softmax safe", safe_kernel, kThreads);

void safe(const Problem& p, cudaStream_t stream) { safe_kernel<<<static_cast<unsigned>(p.rows), kThreads, 0, stream>>>(p); }

}  // namespace xgemm::lab::softmax
