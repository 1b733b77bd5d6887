// v3, first addition during the load.
//
// Idea: half as many blocks; each thread loads two elements and adds them on the way into shared memory. No thread only loads,
// and twice as many requests are in flight. Limit: the tree still runs eight steps with a barrier each for 512 elements.
// Document: 31 GB/s, 3.5x v0.
#include "lab/reduction/pass.cuh"

namespace xgemm::lab::reduction {

template <class T>
__global__ void first_add_kernel(const T* in, T* partials, std::int64_t n) {
  __shared__ T local[kThreads];
  const unsigned tid = threadIdx.x;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * (2 * blockDim.x) + tid, j = i + blockDim.x;
  local[tid] = (i < n ? in[i] : T{}) + (j < n ? in[j] : T{});
  __syncthreads();

  for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
    if (tid < s) local[tid] += local[tid + s];
    __syncthreads();
  }
  if (tid == 0) partials[blockIdx.x] = local[0];
}

const Version v3 = version<first_add_kernel<float>, first_add_kernel<Int>>({3}, "reduction v3_first_add");

}  // namespace xgemm::lab::reduction
