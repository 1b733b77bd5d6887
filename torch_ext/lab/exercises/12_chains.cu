// Exercise 12: y = 1 + x + x^2 + ... + x^(kTerms - 1) of few elements: instruction-level parallelism in place of threads.
//
// The kernel below is right and slow: Horner's rule is one chain of multiply-adds, each of which waits 4 cycles for the one
// before, and there are only 128 threads an SM. Split the sum into 8 independent chains: of every eighth term, with x^8 in place
// of x, put together at the end. (python -m torch_ext.lab little --latency 4 --rate 128: multiply-adds in flight an SM.)
// What to reach: 8 chains of the fma experiment. Check with
//   python -m torch_ext.lab check 12 mine.cu
#include <cuda_runtime.h>

constexpr int kThreads = 128, kTerms = 1 << 13;

__global__ void kernel(const float* x, float* y, long long n) {
  const long long i = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  if (i >= n) return;
  const float value = x[i];
  float sum = 0;  // TODO: eight of them
#pragma unroll 8
  for (int term = 0; term < kTerms; ++term) sum = fmaf(sum, value, 1.0f);
  y[i] = sum;
}

extern "C" void exercise(const float* x, float* y, long long n, cudaStream_t stream) {
  const unsigned blocks = static_cast<unsigned>((n + kThreads - 1) / kThreads);
  kernel<<<blocks, kThreads, 0, stream>>>(x, y, n);
}
