// Online softmax (S1-22; Milakov & Gimelshein, arXiv 1805.02867): maximum and sum in one pass.
//
// m_j = max(m_{j-1}, x_j); d_j = d_{j-1} exp(m_{j-1} - m_j) + exp(x_j - m_j). As safe as safe softmax with the passes of naive:
// two reads and one store, 12 bytes an element (the notes print "3 reads 1 store": D9). Pairs (m, d) merge in any order, so
// threads and blocks can share a row; flash attention rests on this. Limit: memory bandwidth. The paper saw up to 1.3x over safe
// softmax.
#include "lab/softmax/block_reduce.cuh"

namespace xgemm::lab::softmax {
namespace {

struct MaxSum {
  float m, d;

  __device__ __forceinline__ void add(float x) {
    if (x > m) {
      d = d * expf(m - x) + expf(x - x);  // the second term is 1, and NaN for +Inf as in torch
      m = x;
    } else if (x != -INFINITY) {  // exp(-Inf) adds nothing, but -Inf - -Inf would be NaN
      d += expf(x - m);
    }
  }
};

/// Factor that carries a sum from maximum `from` to maximum `to`; 1 where both are -Inf.
__device__ __forceinline__ float rescale(float from, float to) {
  return from == to ? 1.0f : expf(from - to);
}

__device__ __forceinline__ MaxSum combine(MaxSum a, MaxSum b) {
  const float m = fmaxf(a.m, b.m);
  // Separate roundings: a contracted FMA would make combine(a, b) and combine(b, a) differ in the last bit.
  return {m, __fadd_rn(__fmul_rn(a.d, rescale(a.m, m)), __fmul_rn(b.d, rescale(b.m, m)))};
}
__device__ __forceinline__ MaxSum shuffle_xor(MaxSum a, int mask) {
  return {__shfl_xor_sync(kFullWarp, a.m, mask), __shfl_xor_sync(kFullWarp, a.d, mask)};
}

__global__ void __launch_bounds__(kThreads) kernel(const __grid_constant__ Problem p) {
  const float* x = p.x + blockIdx.x * p.cols;
  float* y = p.y + blockIdx.x * p.cols;
  MaxSum row{-INFINITY, 0};
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < p.cols; i += kThreads) row.add(x[i]);
  row = block_reduce(row);
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < p.cols; i += kThreads) y[i] = expf(x[i] - row.m) / row.d;
}

}  // namespace

void online(const Problem& p, cudaStream_t stream) {
  kernel<<<static_cast<unsigned>(p.rows), kThreads, 0, stream>>>(p);
}

}  // namespace xgemm::lab::softmax
