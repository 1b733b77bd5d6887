// v2, sequential addressing.
//
// Idea: the step halves instead of doubling: thread t adds element t + s. Neighbouring lanes touch neighbouring words, so there
// are no bank conflicts and no divergence above a warp. Limit: half of the threads never add anything, they only loaded.
// Document: 17 GB/s, 1.9x v0.
#include "lab/reduction/pass.cuh"

namespace xgemm::lab::reduction {

template <class T>
__global__ void sequential_kernel(const T* in, T* partials, std::int64_t n) {
  __shared__ T local[kThreads];
  const unsigned tid = threadIdx.x;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + tid;
  local[tid] = i < n ? in[i] : T{};
  __syncthreads();

  for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
    if (tid < s) local[tid] += local[tid + s];
    __syncthreads();
  }
  if (tid == 0) partials[blockIdx.x] = local[0];
}

const NameKernel named_sequential("reduction v2_sequential", sequential_kernel<float>, kThreads);

void sequential(const Pass<float>& p) { launch(sequential_kernel<float>, p); }
void sequential(const Pass<Int>& p) { launch(sequential_kernel<Int>, p); }

}  // namespace xgemm::lab::reduction
