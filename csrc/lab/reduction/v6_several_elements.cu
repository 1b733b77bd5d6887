// v6, several elements a thread.
//
// Idea: a grid of as many blocks as the GPU holds at once, which strides over the input; a thread adds many elements in a
// register and the tree of v5 runs once a block. Fewer blocks to start, fewer barriers an element, more requests in flight.
// The slides name the idea and print no code: v6 loads two elements before it adds (kLoads = 2); with eight (v6b) Little's law is
// met: four times the bytes are in flight. Limit: memory bandwidth, which is the floor of the problem. Document: 103 GB/s of 125
// measured, 11.8x v0.
#include "lab/reduction/grid_stride.cuh"

namespace xgemm::lab::reduction {
namespace v6 {

template <int kLoads, class T, unsigned kBlock>
__global__ void __launch_bounds__(kBlock) kernel(const T* in, T* partials, std::int64_t n) {
  __shared__ T local[kBlock];
  const unsigned tid = threadIdx.x;
  T sum = grid_stride_sum<kLoads>(in, n);
  local[tid] = sum;
  __syncthreads();

#pragma unroll
  for (unsigned s = kBlock / 2; s > 32; s /= 2) {
    if (tid < s) local[tid] = sum = sum + local[tid + s];
    __syncthreads();
  }
  if (tid < 32) {
#pragma unroll
    for (unsigned s = 32; s > 0; s /= 2) {
      sum += local[tid + s];
      __syncwarp();
      local[tid] = sum;
      __syncwarp();
    }
    if (tid == 0) partials[blockIdx.x] = sum;
  }
}

const NameKernel named("reduction v6_several_elements", kernel<2, float, kThreads>, kThreads),
    named_b("reduction v6b_eight_loads", kernel<8, float, kThreads>, kThreads);

}  // namespace v6

void several_elements(const Pass<float>& p) {
  launch(p.loads == 2 ? v6::kernel<2, float, kThreads> : v6::kernel<8, float, kThreads>, p);
}
void several_elements(const Pass<Int>& p) {
  launch(p.loads == 2 ? v6::kernel<2, Int, kThreads> : v6::kernel<8, Int, kThreads>, p);
}

}  // namespace xgemm::lab::reduction
