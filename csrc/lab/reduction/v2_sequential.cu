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

const Version v2 = version<sequential_kernel<float>, sequential_kernel<Int>>({2}, "reduction v2_sequential");

}  // namespace xgemm::lab::reduction
