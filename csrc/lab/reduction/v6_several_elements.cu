// v6, several elements a thread.
//
// Idea: a grid of as many blocks as the GPU holds at once, which strides over the input; a thread adds many elements in a
// register and the tree of v5 runs once a block. Fewer blocks to start, fewer barriers an element, more requests in flight.
// The slides name the idea and print no code: v6 loads two elements before it adds (kLoads = 2); with eight (v6b) Little's law is
// met: four times the bytes are in flight. Limit: memory bandwidth, which is the floor of the problem. Document: 103 GB/s of 125
// measured, 11.8x v0.
#include "lab/reduction/grid_stride.cuh"

namespace xgemm::lab::reduction {

template <int kLoads, class T>
__global__ void __launch_bounds__(kThreads) several_elements_kernel(const T* in, T* partials, std::int64_t n) {
  const unsigned tid = threadIdx.x;
  add_unrolled<kThreads>(tid, grid_stride_sum<kLoads>(in, n), partials);
}

const Version v6 = version<several_elements_kernel<2, float>, several_elements_kernel<2, Int>>({6, 2},
                                                                                               "reduction v6_several_elements"),
              v6b = version<several_elements_kernel<8, float>, several_elements_kernel<8, Int>>({6, 8},
                                                                                                "reduction v6b_eight_loads");

}  // namespace xgemm::lab::reduction
