// Latency hiding by instruction-level parallelism (S4-05 to S4-13, Volkov). One block an SM, so threads a block = threads an SM.
//
// fma_chains: `chains` independent chains of FMAs a thread. Little's law: an SM needs latency x 128 FMAs in flight, about 4 x
// 128; what threads do not supply, chains must. 2 * iterations * chains operations a thread, no memory traffic to speak of.
// concurrent_copy: `loads` loads of `width` floats in flight a thread before the first store. Floor: 8 n bytes; what counts is
// threads * loads * width * 4 bytes in flight an SM against latency x bandwidth (about 25 KB an SM on an H200).
#include "device/vector.cuh"
#include "lab/experiments/experiments.h"

namespace xgemm::lab::experiments {
namespace {

template <int kChains>
__global__ void fma_kernel(const float* in, float* out, int iterations) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  float a[kChains];
#pragma unroll
  for (int k = 0; k < kChains; ++k) a[k] = in[t] + k;
#pragma unroll 8
  for (int i = 0; i < iterations; ++i)
#pragma unroll
    for (int k = 0; k < kChains; ++k) a[k] = fmaf(a[k], 0.5f, 1.0f);
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kChains; ++k) sum += a[k];
  out[t] = sum;
}

template <int kLoads, int kWidth>
__global__ void copy_kernel(const float* in, float* out, std::int64_t vectors) {
  using V = Vector<float, kWidth>;
  const V* from = reinterpret_cast<const V*>(in);
  V* to = reinterpret_cast<V*>(out);
  const std::int64_t tile = std::int64_t{kLoads} * blockDim.x;
  for (std::int64_t base = blockIdx.x * tile; base < vectors; base += gridDim.x * tile) {
    V x[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const std::int64_t i = base + k * blockDim.x + threadIdx.x;
      if (i < vectors) x[k] = from[i];
    }
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const std::int64_t i = base + k * blockDim.x + threadIdx.x;
      if (i < vectors) to[i] = x[k];
    }
  }
}

}  // namespace

bool fma_chains(const float* in, float* out, int threads, int blocks, int chains, int iterations, cudaStream_t stream) {
  switch (chains) {
    case 1: fma_kernel<1><<<blocks, threads, 0, stream>>>(in, out, iterations); return true;
    case 2: fma_kernel<2><<<blocks, threads, 0, stream>>>(in, out, iterations); return true;
    case 4: fma_kernel<4><<<blocks, threads, 0, stream>>>(in, out, iterations); return true;
    case 8: fma_kernel<8><<<blocks, threads, 0, stream>>>(in, out, iterations); return true;
    case 16: fma_kernel<16><<<blocks, threads, 0, stream>>>(in, out, iterations); return true;
    default: return false;
  }
}

bool concurrent_copy(const float* in, float* out, std::int64_t n, const CopyShape& s, cudaStream_t stream) {
  const std::int64_t vectors = n / s.width;
  const auto launch = [&](auto kernel) { kernel<<<s.blocks, s.threads, 0, stream>>>(in, out, vectors); };
  switch (10 * s.loads + s.width) {  // S4-12 varies the loads at one word, S4-13 the word at one load
    case 11: launch(copy_kernel<1, 1>); return true;
    case 21: launch(copy_kernel<2, 1>); return true;
    case 41: launch(copy_kernel<4, 1>); return true;
    case 81: launch(copy_kernel<8, 1>); return true;
    case 12: launch(copy_kernel<1, 2>); return true;
    case 14: launch(copy_kernel<1, 4>); return true;
    default: return false;
  }
}

}  // namespace xgemm::lab::experiments
