// v5, completely unrolled.
//
// Idea: the block size is a template parameter, so that the whole tree is straight code without loop counters or tests on
// blockDim. The document writes the barrier inside `if (tid < 512)`: part of the block would wait at a barrier that the rest
// never reaches. Here (add_unrolled in grid_stride.cuh) the barrier is outside of the branch. Limit: instructions no more; 512
// elements a block are too little work for what a block costs. Document: 54 GB/s, 6.2x v0.
#include "lab/reduction/grid_stride.cuh"

namespace xgemm::lab::reduction {

template <class T, unsigned kBlock>
__global__ void __launch_bounds__(kBlock) unrolled_kernel(const T* in, T* partials, std::int64_t n) {
  const unsigned tid = threadIdx.x;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * (2 * kBlock) + tid, j = i + kBlock;
  const T sum = (i < n ? in[i] : T{}) + (j < n ? in[j] : T{});
  add_unrolled<kBlock>(tid, sum, partials);
}

const Version v5 = version<unrolled_kernel<float, kThreads>, unrolled_kernel<Int, kThreads>>({5}, "reduction v5_unrolled");

}  // namespace xgemm::lab::reduction
