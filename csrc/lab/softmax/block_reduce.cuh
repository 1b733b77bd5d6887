// Reduction over a block in a fixed order, for any type that combine() and shuffle_xor() know.
#pragma once
#include "device/warp.cuh"
#include "lab/softmax/softmax.h"

namespace xgemm::lab::softmax {

struct Sum {
  float value;
};
struct Max {
  float value;
};

__device__ __forceinline__ Sum combine(Sum a, Sum b) {
  return {a.value + b.value};
}
__device__ __forceinline__ Max combine(Max a, Max b) {
  return {fmaxf(a.value, b.value)};
}
__device__ __forceinline__ Sum shuffle_xor(Sum a, int mask) {
  return {__shfl_xor_sync(kFullWarp, a.value, mask)};
}
__device__ __forceinline__ Max shuffle_xor(Max a, int mask) {
  return {__shfl_xor_sync(kFullWarp, a.value, mask)};
}

/// The combination of `mine` over all threads, in every thread. combine() must be commutative bit for bit.
/// At most one call a type in a kernel: the shared array is not guarded against a second use.
template <class T>
__device__ __forceinline__ T block_reduce(T mine) {
  constexpr int kWarps = kThreads / kWarpSize;
  __shared__ T of_warp[kWarps];
#pragma unroll
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) mine = combine(mine, shuffle_xor(mine, mask));
  if (threadIdx.x % kWarpSize == 0) of_warp[threadIdx.x / kWarpSize] = mine;
  __syncthreads();
  mine = of_warp[threadIdx.x % kWarps];
#pragma unroll
  for (int mask = kWarps / 2; mask > 0; mask /= 2) mine = combine(mine, shuffle_xor(mine, mask));
  return mine;
}

}  // namespace xgemm::lab::softmax
