// Naive softmax: d = sum of exp(x); y = exp(x) / d.
//
// Two reads and one store an element: 12 bytes. Overflows BY DESIGN: exp(x) is Inf above x = 88.7 in fp32, so that a row which
// holds such an x gives Inf / Inf = NaN there and 0 elsewhere; and a row far below -88 gives 0 / 0. That is what safe softmax is
// for. Limit: memory bandwidth; a row of up to 48 KiB or so comes from L1 or L2 on its second read.
#include "lab/softmax/block_reduce.cuh"

namespace xgemm::lab::softmax {

__global__ void __launch_bounds__(kThreads) naive_kernel(const __grid_constant__ Problem p) {
  const float* x = p.x + blockIdx.x * p.cols;
  float* y = p.y + blockIdx.x * p.cols;
  float d = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < p.cols; i += kThreads) d += expf(x[i]);
  d = block_reduce(d, Sum{});
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < p.cols; i += kThreads) y[i] = expf(x[i]) / d;
}

const Step named_naive({0}, "softmax naive", naive_kernel, kThreads, launch_rows<naive_kernel>);

}  // namespace xgemm::lab::softmax
