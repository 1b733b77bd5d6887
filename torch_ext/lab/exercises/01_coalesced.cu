// Exercise 01: C = A B with a thread for each element of C, coalesced.
//
// A is m x k, B is k x n, C is m x n, row-major floats of any sizes. The kernel below is right and slow: the lanes of a warp hold
// 32 consecutive ROWS, so that each load of A touches 32 sectors. Make the lanes hold consecutive COLUMNS.
// What to reach: step 02 of the SGEMM ladder, several times step 01. Check with
//   python -m torch_ext.lab check 01 mine.cu
#include <cuda_runtime.h>

__global__ void kernel(const float* a, const float* b, float* c, int m, int n, int k) {
  // TODO: which of threadIdx.x and threadIdx.y should choose the column? The grid below must follow.
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  const int col = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= m || col >= n) return;
  float sum = 0;
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
  c[row * n + col] = sum;
}

extern "C" void exercise(const float* a, const float* b, float* c, int m, int n, int k, cudaStream_t stream) {
  const dim3 block(32, 32), grid((m + 31) / 32, (n + 31) / 32);
  kernel<<<grid, block, 0, stream>>>(a, b, c, m, n, k);
}
