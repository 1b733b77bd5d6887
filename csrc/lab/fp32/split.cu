// Splits rows of fp32 into fp16 hi + lo, scaled by a power of two a row or not. Floor: 4 bytes read (twice: the second time from
// L2) and 4 written an element.
#include <cstdint>

#include "lab/fp32/fp32.h"

namespace xgemm::lab::fp32 {

constexpr int kSplitThreads = 256;
constexpr int kTop = 13;  // the row's largest value comes to [2^13, 2^14): as high as fp16 goes, with room for rounding up

__global__ void __launch_bounds__(kSplitThreads) split_kernel(const __grid_constant__ Operand p, int k, bool scaled) {
  __shared__ float warps[kSplitThreads / 32];
  const std::int64_t row = blockIdx.x;
  const float* x = p.x + row * k;
  int exponent = 0;
  if (scaled) {
    float largest = 0;
    for (int i = threadIdx.x; i < k; i += kSplitThreads) largest = fmaxf(largest, fabsf(x[i]));
    for (int offset = 16; offset > 0; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, offset));
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = largest;
    __syncthreads();
    for (int w = 0; w < kSplitThreads / 32; ++w) largest = fmaxf(largest, warps[w]);
    exponent = largest > 0 ? ilogbf(largest) - kTop : 0;
  }
  if (threadIdx.x == 0) p.exponent[row] = exponent;
  for (int i = threadIdx.x; i < k; i += kSplitThreads) {
    const float y = ldexpf(x[i], -exponent);
    const __half hi = __float2half_rn(y);
    p.hi[row * k + i] = hi;
    p.lo[row * k + i] = __float2half_rn(y - __half2float(hi));
  }
}

const NameKernel named_pass("fp32 split pass", split_kernel, kSplitThreads);

void split(const Operand& operand, int k, bool scaled, cudaStream_t stream) {
  split_kernel<<<operand.rows, kSplitThreads, 0, stream>>>(operand, k, scaled);
}

}  // namespace xgemm::lab::fp32
