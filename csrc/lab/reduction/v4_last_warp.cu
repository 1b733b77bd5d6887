// v4, the last warp unrolled.
//
// Idea: when 32 threads are left they are one warp: no barrier of the block and no loop is needed for the last six steps.
// The document leaves out every synchronisation there and relies on lanes in lock step. Since Volta lanes are scheduled one by
// one, so that is a race: here each step reads, waits for the warp, writes, and waits again.
// Limit: loop and barriers above the last warp. Document: 51 GB/s, 5.9x v0.
#include "lab/reduction/pass.cuh"

namespace xgemm::lab::reduction {

/// Adds local[0 .. 64) into the value of lane 0. Called by all 32 lanes of warp 0.
template <class T>
__device__ __forceinline__ T reduce_last_warp(T* local, unsigned lane) {
  T sum = local[lane];
#pragma unroll
  for (unsigned s = 32; s > 0; s /= 2) {
    sum += local[lane + s];
    __syncwarp();
    local[lane] = sum;
    __syncwarp();
  }
  return sum;
}

template <class T>
__global__ void last_warp_kernel(const T* in, T* partials, std::int64_t n) {
  __shared__ T local[kThreads];
  const unsigned tid = threadIdx.x;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * (2 * blockDim.x) + tid, j = i + blockDim.x;
  local[tid] = (i < n ? in[i] : T{}) + (j < n ? in[j] : T{});
  __syncthreads();

  for (unsigned s = blockDim.x / 2; s > 32; s /= 2) {
    if (tid < s) local[tid] += local[tid + s];
    __syncthreads();
  }
  if (tid < 32) {
    const T sum = reduce_last_warp(local, tid);
    if (tid == 0) partials[blockIdx.x] = sum;
  }
}

const Version v4 = version<last_warp_kernel<float>, last_warp_kernel<Int>>({4}, "reduction v4_last_warp");

}  // namespace xgemm::lab::reduction
