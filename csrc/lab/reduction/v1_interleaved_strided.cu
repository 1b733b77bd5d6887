// v1, interleaved addressing with strided threads.
//
// Idea: the same tree as v0, same additions in the same order, but the work goes to threads 0, 1, 2, ...: whole warps work or
// rest, so that nothing diverges until less than a warp is left. (The slide prints Local[tid] where index is meant.)
// Limit: bank conflicts. Neighbouring lanes are 2 s words apart: 2 ways in the first step, 4 in the second, then 8: with 256
// threads, fewer lanes work the wider they are apart.
// Document: 12 GB/s, 1.4x v0.
#include "lab/reduction/pass.cuh"

namespace xgemm::lab::reduction {

template <class T>
__global__ void interleaved_strided_kernel(const T* in, T* partials, std::int64_t n) {
  __shared__ T local[kThreads];
  const unsigned tid = threadIdx.x;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + tid;
  local[tid] = i < n ? in[i] : T{};
  __syncthreads();

  for (unsigned s = 1; s < blockDim.x; s *= 2) {
    const unsigned index = 2 * s * tid;
    if (index < blockDim.x) local[index] += local[index + s];
    __syncthreads();
  }
  if (tid == 0) partials[blockIdx.x] = local[0];
}

const Version v1 =
    version<interleaved_strided_kernel<float>, interleaved_strided_kernel<Int>>({1}, "reduction v1_interleaved_strided");

}  // namespace xgemm::lab::reduction
