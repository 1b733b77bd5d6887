// Step 05, 2-D block tile: each thread computes an 8 x 8 square of C in registers (xGeMM's step 05, siboehm's kernel 5).
//
// Idea: an outer product of 8 values of A and 8 of B gives 64 FMAs for 16 floats from shared memory, a quarter an FMA. A block of
// 256 threads owns a 128 x 128 tile and walks k in steps of 16; a thread loads 8 elements of either tile. Registers: 64 sums and
// 16 operands, so only a few warps fit an SM, and yet it is faster: Volkov's argument, more registers a thread feed the
// FMA units where shared memory cannot. The compiler reads four floats at once, of As along k, so that shared memory takes no
// more loads than in step 06. Limit: a thread fetches its 16 elements of a step one by one, two in flight, and a block waits for
// them. 16 KiB a block. Documents: 54 to 69 % of cuBLAS.
#include "lab/sgemm/access.cuh"

namespace xgemm::lab::sgemm::step_05 {

constexpr int kBM = 128, kBN = 128, kBK = 16;  // the block's tile of C, and the step along k
constexpr int kTM = 8, kTN = 8;                // the thread's square
constexpr int kThreads = (kBM / kTM) * (kBN / kTN);

__global__ void __launch_bounds__(kThreads, 2) kernel(const __grid_constant__ Problem p) {
  __shared__ float As[kBM][kBK], Bs[kBK][kBN];
  const int t = threadIdx.x;
  const int col_tiles = (p.n + kBN - 1) / kBN;
  const int row0 = static_cast<int>(blockIdx.x / col_tiles) * kBM, col0 = static_cast<int>(blockIdx.x % col_tiles) * kBN;
  const int row = t / (kBN / kTN) * kTM, col = t % (kBN / kTN) * kTN;

  float sum[kTM][kTN] = {};
  for (int k0 = 0; k0 < p.k; k0 += kBK) {
#pragma unroll 2  // all at once would cost the registers of another block on the SM
    for (int i = t; i < kBM * kBK; i += kThreads) As[i / kBK][i % kBK] = load(p.a, row0 + i / kBK, k0 + i % kBK, p.m, p.k);
#pragma unroll 2
    for (int i = t; i < kBK * kBN; i += kThreads) Bs[i / kBN][i % kBN] = load(p.b, k0 + i / kBN, col0 + i % kBN, p.k, p.n);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kBK; ++i) {
      float a[kTM], b[kTN];
#pragma unroll
      for (int r = 0; r < kTM; ++r) a[r] = As[row + r][i];
#pragma unroll
      for (int c = 0; c < kTN; ++c) b[c] = Bs[i][col + c];
#pragma unroll
      for (int r = 0; r < kTM; ++r)
#pragma unroll
        for (int c = 0; c < kTN; ++c) sum[r][c] += a[r] * b[c];
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kTM; ++r)
#pragma unroll
    for (int c = 0; c < kTN; ++c) store(p, row0 + row + r, col0 + col + c, sum[r][c]);
}

const Step named({5}, "sgemm 05_block_tile_2d", kernel, kThreads, [](const Problem& p, cudaStream_t stream) {
  kernel<<<ceil_div(p.m, kBM) * ceil_div(p.n, kBN), kThreads, 0, stream>>>(p);
});

}  // namespace xgemm::lab::sgemm::step_05
