// Spilling: a kernel that keeps 64 values alive, compiled with fewer and fewer registers (nvcc -maxrregcount).
//
// Each thread runs 64 independent chains y <- y b + c from x, x + 1, ... and writes their sum. All 64 values live through the
// whole loop: with fewer than some 70 registers a thread the compiler keeps the others in local memory and moves them in every
// step. n is a multiple of 256. Floor: 128 operations a step and thread. torch_ext/lab/spilling.py compiles it for the GPU at
// hand.
#include <cuda_runtime.h>

constexpr int kLive = 64, kThreads = 256;

__global__ void kernel(const float* x, float* y, int steps, float b, float c) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  float live[kLive], sum = 0;
#pragma unroll
  for (int k = 0; k < kLive; ++k) live[k] = x[i] + k;
#pragma unroll 1
  for (int step = 0; step < steps; ++step)
#pragma unroll
    for (int k = 0; k < kLive; ++k) live[k] = fmaf(live[k], b, c);
#pragma unroll
  for (int k = 0; k < kLive; ++k) sum += live[k];
  y[i] = sum;
}

extern "C" void exercise(const float* x, float* y, int n, int steps, float b, float c, cudaStream_t stream) {
  kernel<<<n / kThreads, kThreads, 0, stream>>>(x, y, steps, b, c);
}
