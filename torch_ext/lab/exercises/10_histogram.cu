// Exercise 10: counts[v] = how often v is among x[0 .. n), 0 <= v < kBins: privatisation proper.
//
// counts is 0 at the start. The kernel below is right and slow: all threads of the GPU meet at 256 addresses. Give each block
// counters of its own in shared memory (set them to 0 first), and add them to counts once, at its end; let a block take many
// elements, so that it does so seldom. What to reach: `privatised` of the privatisation experiment. Check with
//   python -m torch_ext.lab check 10 mine.cu
#include <cuda_runtime.h>

constexpr int kThreads = 256, kBins = 256;

__global__ void kernel(const int* x, int* counts, long long n) {
  // TODO: private counters, two barriers, one merge.
  const long long i = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  if (i < n) atomicAdd(&counts[x[i]], 1);
}

extern "C" void exercise(const int* x, int* counts, long long n, cudaStream_t stream) {
  const unsigned blocks = static_cast<unsigned>((n + kThreads - 1) / kThreads);
  kernel<<<blocks, kThreads, 0, stream>>>(x, counts, n);
}
