// Privatisation.
//
// window_sum: out[i] = sum of in[j], |j - i| <= window / 2, inside the array; straight from global memory, or staged in shared
// memory. The document stages only the block's own elements, so the sums at its edges are wrong, and has its barrier in a
// branch; here the block also loads a halo of window / 2 elements on either side and every thread reaches the barrier. Floor: 8 n
// bytes. histogram: one atomic an element on global counters, or on a private copy of each block in shared memory that is merged
// once at the end: privatisation proper. Integer atomics commute exactly, so the counts are the same on every run. Floor: 4 n
// bytes.
#include "lab/experiments/experiments.h"

namespace xgemm::lab::experiments {

__global__ void window_direct(const float* in, float* out, std::int64_t n, int half) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = 0;
  for (int j = -half; j <= half; ++j)
    if (i + j >= 0 && i + j < n) sum += in[i + j];
  out[i] = sum;
}

__global__ void window_shared(const float* in, float* out, std::int64_t n, int half) {
  __shared__ float staged[kThreads + kMaxWindow - 1];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads - half;
  for (int j = threadIdx.x; j < kThreads + 2 * half; j += kThreads)
    staged[j] = first + j >= 0 && first + j < n ? in[first + j] : 0.0f;
  __syncthreads();
  const std::int64_t i = first + half + threadIdx.x;
  if (i >= n) return;
  float sum = 0;
  for (int j = 0; j <= 2 * half; ++j) sum += staged[threadIdx.x + j];
  out[i] = sum;
}

__global__ void histogram_global(const int* in, int* counts, std::int64_t n, int bins) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
    if (const int bin = in[i]; bin >= 0 && bin < bins) atomicAdd(&counts[bin], 1);
}

__global__ void histogram_private(const int* in, int* counts, std::int64_t n, int bins) {
  extern __shared__ int mine[];
  for (int b = threadIdx.x; b < bins; b += blockDim.x) mine[b] = 0;
  __syncthreads();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
    if (const int bin = in[i]; bin >= 0 && bin < bins) atomicAdd(&mine[bin], 1);
  __syncthreads();
  for (int b = threadIdx.x; b < bins; b += blockDim.x)
    if (mine[b] != 0) atomicAdd(&counts[b], mine[b]);
}

const NameKernel named_privatisation[] = {{"window_sum direct", window_direct, kThreads},
                                          {"window_sum shared", window_shared, kThreads},
                                          {"histogram global", histogram_global, kThreads},
                                          {"histogram privatised", histogram_private, kThreads, sizeof(int) * kMaxBins}};

}  // namespace xgemm::lab::experiments
