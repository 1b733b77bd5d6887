// Safe softmax: m = max x; d = sum of exp(x - m); y = exp(x - m) / d.
//
// Three reads and one store an element: 16 bytes. No exponent is above 0, so nothing overflows, and d is at least 1.
// Limit: memory bandwidth, one more pass over the row than naive. What every framework computes.
#include "lab/softmax/block_reduce.cuh"

namespace xgemm::lab::softmax {

__global__ void __launch_bounds__(kThreads) safe_kernel(const __grid_constant__ Problem p) {
  const float* x = p.x + blockIdx.x * p.cols;
  float* y = p.y + blockIdx.x * p.cols;
  float m = -INFINITY;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < p.cols; i += kThreads) m = fmaxf(m, x[i]);
  m = block_reduce(m, Max{});  // fmaxf passes over NaN; the sum below does not
  float d = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < p.cols; i += kThreads) d += expf(x[i] - m);
  d = block_reduce(d, Sum{});
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < p.cols; i += kThreads) y[i] = expf(x[i] - m) / d;
}

const Step named_safe({1}, "softmax safe", safe_kernel, kThreads, launch_rows<safe_kernel>);

}  // namespace xgemm::lab::softmax
