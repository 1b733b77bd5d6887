// What v6 and later share: each thread adds many elements in registers before any thread talks to another. And v5's tree, which
// v6 takes over, and v7's sum of a block, which v8 takes over.
#pragma once
#include "device/warp.cuh"
#include "lab/reduction/pass.cuh"

namespace xgemm::lab::reduction {

/// v5's tree, in straight code: the block's partial sum.
template <unsigned kBlock, class T>
__device__ __forceinline__ void add_unrolled(unsigned tid, T sum, T* partials) {
  __shared__ T local[kBlock];
  local[tid] = sum;
  __syncthreads();

#pragma unroll
  for (unsigned s = kBlock / 2; s > 32; s /= 2) {
    if (tid < s) local[tid] = sum = sum + local[tid + s];
    __syncthreads();
  }
  if (tid < 32) {
#pragma unroll
    for (unsigned s = 32; s > 0; s /= 2) {
      sum += local[tid + s];
      __syncwarp();
      local[tid] = sum;
      __syncwarp();
    }
    if (tid == 0) partials[blockIdx.x] = sum;
  }
}

/// This thread's share of in[0 .. n). The grid walks in tiles of kThreads * kLoads elements; all loads of a tile are issued
/// before the first addition, and neighbouring lanes load neighbours.
template <int kLoads, class T>
__device__ __forceinline__ T grid_stride_sum(const T* in, std::int64_t n) {
  constexpr std::int64_t kTile = std::int64_t{kThreads} * kLoads;
  T sum{};
  for (std::int64_t tile = blockIdx.x * kTile; tile < n; tile += gridDim.x * kTile) {
    T x[kLoads];
    if (tile + kTile <= n) {  // the same for the whole block: a full tile needs no test per element
#pragma unroll
      for (int k = 0; k < kLoads; ++k) x[k] = in[tile + k * kThreads + threadIdx.x];
    } else {
#pragma unroll
      for (int k = 0; k < kLoads; ++k) {
        const std::int64_t i = tile + k * kThreads + threadIdx.x;
        x[k] = i < n ? in[i] : T{};
      }
    }
#pragma unroll
    for (int k = 0; k < kLoads; ++k) sum += x[k];
  }
  return sum;
}

/// The sum over a block, in thread 0. Between two calls in a kernel there is a barrier of the block.
template <class T>
__device__ __forceinline__ T block_sum(T mine) {
  constexpr int kWarps = kThreads / kWarpSize;
  const auto add = [](T a, T b) { return a + b; };
  __shared__ T of_warp[kWarps];
  mine = warp_reduce(mine, add);
  if (threadIdx.x % kWarpSize == 0) of_warp[threadIdx.x / kWarpSize] = mine;
  __syncthreads();
  return threadIdx.x < kWarpSize ? warp_reduce<kWarps>(of_warp[threadIdx.x % kWarps], add) : mine;
}

}  // namespace xgemm::lab::reduction
