// v7, shuffles only (cuda-samples' reduce7).
//
// Idea: lanes exchange registers directly. A warp adds its 32 values in five shuffles without shared memory; only one value a
// warp goes through shared memory, and the first warp adds those the same way. One barrier in all (block_sum in grid_stride.cuh).
// Limit: memory bandwidth, as v6; what is left to win is the tail of each block, which matters for small n.
#include "lab/reduction/grid_stride.cuh"

namespace xgemm::lab::reduction {

template <int kLoads, class T>
__global__ void __launch_bounds__(kThreads) shuffle_kernel(const T* in, T* partials, std::int64_t n) {
  const T sum = block_sum(grid_stride_sum<kLoads>(in, n));
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

const Version v7 = version<shuffle_kernel<8, float>, shuffle_kernel<8, Int>>({7, 8}, "reduction v7_shuffle"),
              v7b = version<shuffle_kernel<2, float>, shuffle_kernel<2, Int>>({7, 2}, "reduction v7, two loads");

}  // namespace xgemm::lab::reduction
