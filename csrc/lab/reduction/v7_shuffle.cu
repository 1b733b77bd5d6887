// v7, shuffles only (cuda-samples' reduce7).
//
// Idea: lanes exchange registers directly. A warp adds its 32 values in five shuffles without shared memory; only one value a
// warp goes through shared memory, and the first warp adds those the same way. One barrier in all. Limit: memory bandwidth, as
// v6; what is left to win is the tail of each block, which matters for small n.
#include "device/warp.cuh"
#include "lab/kernels.h"
#include "lab/reduction/grid_stride.cuh"

namespace xgemm::lab::reduction {
namespace v7 {

struct Add {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};

template <int kLoads, class T>
__global__ void __launch_bounds__(kThreads) kernel(const T* in, T* partials, std::int64_t n) {
  constexpr int kWarps = kThreads / kWarpSize;
  __shared__ T of_warp[kWarps];
  const T sum = warp_reduce(grid_stride_sum<kLoads>(in, n), Add{});
  if (threadIdx.x % kWarpSize == 0) of_warp[threadIdx.x / kWarpSize] = sum;
  __syncthreads();
  if (threadIdx.x < kWarpSize) {
    const T total = warp_reduce<kWarps>(of_warp[threadIdx.x % kWarps], Add{});
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
  }
}

template <class T>
void launch(const Pass<T>& p) {
  const auto pass = p.loads == 2 ? kernel<2, T> : kernel<8, T>;
  pass<<<static_cast<unsigned>(p.blocks), kThreads, 0, p.stream>>>(p.in, p.partials, p.n);
}

const NameKernel named("reduction v7_shuffle", kernel<8, float>, kThreads);

}  // namespace v7

void shuffle(const Pass<float>& p) { v7::launch(p); }
void shuffle(const Pass<Int>& p) { v7::launch(p); }

}  // namespace xgemm::lab::reduction
