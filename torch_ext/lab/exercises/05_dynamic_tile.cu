// Exercise 05: C = A B with a tile that is chosen when the program runs (the University of Sheffield's lab 6).
//
// A is m x k, B is k x n, C is m x n, row-major floats of any sizes. The kernel below is right and slow: its tiles are 8 x 8,
// fixed by the compiler, and each element of A is read n / 8 times. Let the launch choose the side:
//   one array `extern __shared__ float shared[]` for both tiles, 2 side^2 floats, whose size the launch passes;
//   the block size from cudaOccupancyMaxPotentialBlockSizeVariableSMem, which asks how many bytes a block of so many threads
//   needs; of that the largest power of four, so that the tile is a square.
// What to reach: `dynamic 32` of the tiling experiment. A larger tile is what helps, not the occupancy, which is full for all.
//   python -m torch_ext.lab check 05 mine.cu
#include <cuda_runtime.h>

constexpr int kSide = 8;  // TODO: known to the launch only

__global__ void kernel(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float As[kSide][kSide], Bs[kSide][kSide];
  const int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * kSide + ty, col = blockIdx.x * kSide + tx;
  float sum = 0;
  for (int k0 = 0; k0 < k; k0 += kSide) {
    As[ty][tx] = row < m && k0 + tx < k ? a[row * k + k0 + tx] : 0;
    Bs[ty][tx] = k0 + ty < k && col < n ? b[(k0 + ty) * n + col] : 0;
    __syncthreads();
    for (int i = 0; i < kSide; ++i) sum += As[ty][i] * Bs[i][tx];
    __syncthreads();
  }
  if (row < m && col < n) c[row * n + col] = sum;
}

extern "C" void exercise(const float* a, const float* b, float* c, int m, int n, int k, cudaStream_t stream) {
  const dim3 block(kSide, kSide), grid((n + kSide - 1) / kSide, (m + kSide - 1) / kSide);
  kernel<<<grid, block, 0, stream>>>(a, b, c, m, n, k);
}
