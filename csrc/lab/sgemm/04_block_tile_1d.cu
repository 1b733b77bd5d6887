// Step 04, 1-D block tile: each thread computes 8 elements of one column of C (xGeMM's step 04, siboehm's kernel 4).
//
// Idea: coarsening. A value of B, once in a register, serves 8 rows: 9 floats from shared memory for 8 FMAs where step 03 needs
// 16, and 3 loads where it has 10 (the compiler loads four elements of As at once). A block of 512 threads owns a 64 x 64 tile of
// C and walks k in steps of 8, so each thread loads exactly one element of either tile. Bank conflicts: none; a warp shares one
// row of As (broadcast) and reads 32 consecutive Bs elements. Limit: those loads, and two barriers for 8 of k. 4 KiB a block.
// Documents: 33 to 37 % of cuBLAS.
#include "lab/sgemm/access.cuh"

namespace xgemm::lab::sgemm::step_04 {

constexpr int kBM = 64, kBN = 64, kBK = 8;  // the block's tile of C, and the step along k
constexpr int kTM = 8;                      // rows a thread
constexpr int kThreads = kBM * kBN / kTM;
static_assert(kThreads == kBM * kBK && kThreads == kBK * kBN, "one element of either tile a thread");

__global__ void __launch_bounds__(kThreads) kernel(const __grid_constant__ Problem p) {
  __shared__ float As[kBM][kBK], Bs[kBK][kBN];
  const int t = threadIdx.x;
  const int col_tiles = (p.n + kBN - 1) / kBN;
  const int row0 = static_cast<int>(blockIdx.x / col_tiles) * kBM, col0 = static_cast<int>(blockIdx.x % col_tiles) * kBN;
  const int row = t / kBN * kTM, col = t % kBN;  // this thread's 8 x 1 strip, inside the tile

  float sum[kTM] = {};
  for (int k0 = 0; k0 < p.k; k0 += kBK) {
    As[t / kBK][t % kBK] = load(p.a, row0 + t / kBK, k0 + t % kBK, p.m, p.k);
    Bs[t / kBN][t % kBN] = load(p.b, k0 + t / kBN, col0 + t % kBN, p.k, p.n);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kBK; ++i) {
      const float b = Bs[i][col];
#pragma unroll
      for (int r = 0; r < kTM; ++r) sum[r] += As[row + r][i] * b;
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kTM; ++r) store(p, row0 + row + r, col0 + col, sum[r]);
}

const Step named({4}, "sgemm 04_block_tile_1d", kernel, kThreads, [](const Problem& p, cudaStream_t stream) {
  kernel<<<ceil_div(p.m, kBM) * ceil_div(p.n, kBN), kThreads, 0, stream>>>(p);
});

}  // namespace xgemm::lab::sgemm::step_04
