// v5, completely unrolled.
//
// Idea: the block size is a template parameter, so that the whole tree is straight code without loop counters or tests on
// blockDim. The document writes the barrier inside `if (tid < 512)`: part of the block would wait at a barrier that the rest
// never reaches. Here the barrier is outside of the branch. Limit: instructions no more; 512 elements a block are too
// little work for what a block costs. Document: 54 GB/s, 6.2x v0.
#include "lab/reduction/pass.cuh"

namespace xgemm::lab::reduction {
namespace v5 {

template <class T, unsigned kBlock>
__global__ void __launch_bounds__(kBlock) kernel(const T* in, T* partials, std::int64_t n) {
  __shared__ T local[kBlock];
  const unsigned tid = threadIdx.x;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * (2 * kBlock) + tid, j = i + kBlock;
  T sum = (i < n ? in[i] : T{}) + (j < n ? in[j] : T{});
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

const NameKernel named("reduction v5_unrolled", kernel<float, kThreads>, kThreads);

}  // namespace v5

void unrolled(const Pass<float>& p) { launch(v5::kernel<float, kThreads>, p); }
void unrolled(const Pass<Int>& p) { launch(v5::kernel<Int, kThreads>, p); }

}  // namespace xgemm::lab::reduction
