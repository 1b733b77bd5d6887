// Exercise 02: C = A B through tiles in shared memory.
//
// A is m x k, B is k x n, C is m x n, row-major floats of any sizes. The kernel below reads every operand from global memory: 2 k
// loads an element. A block of 32 x 32 threads needs only 32 rows of A and 32 columns of B between them: stage 32 x 32 tiles of
// both in shared memory and take the products from there. Zeros outside of a matrix add nothing.
// What to reach: step 03 of the SGEMM ladder. Check with
//   python -m torch_ext.lab check 02 mine.cu
#include <cuda_runtime.h>

constexpr int kTile = 32;

__global__ void kernel(const float* a, const float* b, float* c, int m, int n, int k) {
  const int row = blockIdx.y * kTile + threadIdx.y;
  const int col = blockIdx.x * kTile + threadIdx.x;
  // TODO: two tiles in shared memory; a loop over k in steps of kTile; two barriers a step, which every thread reaches.
  float sum = 0;
  if (row < m && col < n)
    for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
  if (row < m && col < n) c[row * n + col] = sum;
}

extern "C" void exercise(const float* a, const float* b, float* c, int m, int n, int k, cudaStream_t stream) {
  const dim3 block(kTile, kTile), grid((n + kTile - 1) / kTile, (m + kTile - 1) / kTile);
  kernel<<<grid, block, 0, stream>>>(a, b, c, m, n, k);
}
