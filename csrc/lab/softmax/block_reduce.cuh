// What the variants share: their launch, and reduction over a block in a fixed order.
#pragma once
#include "device/warp.cuh"
#include "lab/softmax/softmax.h"

namespace xgemm::lab::softmax {

struct Sum {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// The combination of `mine` over all threads, in every thread. Op must be commutative bit for bit.
/// At most one call an Op in a kernel: the shared array is not guarded against a second use.
template <class Op>
__device__ __forceinline__ float block_reduce(float mine, Op op) {
  constexpr int kWarps = kThreads / kWarpSize;
  __shared__ float of_warp[kWarps];
  mine = warp_reduce(mine, op);
  if (threadIdx.x % kWarpSize == 0) of_warp[threadIdx.x / kWarpSize] = mine;
  __syncthreads();
  return warp_reduce<kWarps>(of_warp[threadIdx.x % kWarps], op);
}

/// A block a row.
template <auto kKernel>
void launch_rows(const Problem& p, cudaStream_t stream) {
  kKernel<<<static_cast<unsigned>(p.rows), kThreads, 0, stream>>>(p);
}

}  // namespace xgemm::lab::softmax
