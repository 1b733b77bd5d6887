// Coalescing and the occupancy API: out[i] = in[(i * stride) % n].
//
// Stride s: a warp's 32 loads touch 4 s sectors of 32 bytes, up to 32. The modulo walks the array s times, and DRAM delivers at
// least 32 bytes for each element that is used from stride 8 on, 64 where neighbouring sectors come with it (strides 16 and 32
// on an H200): up to 16 times the bytes. Floor: 8 n bytes; documents: 1.37x (T4), 1.72x (4090) at stride 2. One load a thread is
// the lecture's pair of kernels as printed. On an H200 starting their blocks of 128 threads takes longer than their 1 KiB of
// traffic, as empty_kernel shows; with 8 loads in flight a thread there are an eighth of the blocks, and memory decides.
#include "lab/experiments/experiments.h"

namespace xgemm::lab::experiments {

/// copyDataCoalesced, whose block size the occupancy API is asked for.
__global__ void coalesced_kernel(const float* in, float* out, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i];
}

/// copyDataNonCoalesced, with any stride; unsigned, so that i * stride stays below 2^32 at the sizes that the lab measures.
__global__ void non_coalesced_kernel(const float* in, float* out, unsigned n, unsigned stride) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[(i * stride) % n];
}

constexpr int kStridedLoads = 8;

/// A 64-bit modulo an element would cost more than the access: `step` is (blockDim.x * stride) % n, and `wraps` says how often a
/// block's elements pass n, rounded (the loops correct the quotient by one).
__global__ void strided_kernel(const float* in, float* out, std::int64_t n, int stride, std::int64_t step, float wraps) {
  const std::int64_t base = static_cast<std::int64_t>(blockIdx.x) * blockDim.x * kStridedLoads + threadIdx.x;
  std::int64_t from = base * stride - static_cast<std::int64_t>(static_cast<float>(blockIdx.x) * wraps) * n;
  while (from < 0) from += n;
  while (from >= n) from -= n;
  float x[kStridedLoads];
#pragma unroll
  for (int k = 0; k < kStridedLoads; ++k) {
    if (base + k * static_cast<int>(blockDim.x) < n) x[k] = in[from];
    from += step;
    if (from >= n) from -= n;
  }
#pragma unroll
  for (int k = 0; k < kStridedLoads; ++k) {
    const std::int64_t i = base + k * static_cast<int>(blockDim.x);
    if (i < n) out[i] = x[k];
  }
}

__global__ void empty_kernel() {}

const NameKernel named_coalesced("coalesced copy", coalesced_kernel, 128), named_1("strided copy 1", non_coalesced_kernel, 128),
    named_8("strided copy 8", strided_kernel, 128), named_empty("empty", empty_kernel, 128);

}  // namespace xgemm::lab::experiments
