// Coalescing (S1-04, S1-05) and the occupancy API (S1-06): out[i] = in[(i * stride) % n].
//
// Stride 1: a warp reads 4 sectors of 32 bytes. Stride 2: 8 sectors, half of each unused; the modulo walks the array twice, so
// the bytes that leave DRAM are 2 x 4 n read (unless L2 holds the array) and 4 n written. Floor: 8 n bytes; documents: 1.37x (T4)
// and 1.72x (4090).
#include "lab/experiments/experiments.h"

namespace xgemm::lab::experiments {
namespace {

__global__ void copy_kernel(const float* in, float* out, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i];
}

__global__ void strided_kernel(const float* in, float* out, std::int64_t n, int stride) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  // A 64-bit modulo would cost more than the access; i * stride passes n fewer than `stride` times.
  std::int64_t from = i * stride;
  while (from >= n) from -= n;
  out[i] = in[from];
}

}  // namespace

void strided_copy(const float* in, float* out, std::int64_t n, int stride, int threads, cudaStream_t stream) {
  if (stride == 1)
    copy_kernel<<<blocks_for(n, threads), threads, 0, stream>>>(in, out, n);
  else
    strided_kernel<<<blocks_for(n, threads), threads, 0, stream>>>(in, out, n, stride);
}

BlockSize best_block_size() {
  BlockSize best{};
  cudaFuncAttributes attributes{};
  cudaFuncGetAttributes(&attributes, copy_kernel);
  cudaOccupancyMaxPotentialBlockSize(&best.min_grid, &best.threads, copy_kernel, 0, 0);
  best.registers = attributes.numRegs;
  return best;
}

}  // namespace xgemm::lab::experiments
