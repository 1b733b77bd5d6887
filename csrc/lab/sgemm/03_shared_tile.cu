// Step 03, shared tile: the block stages 32 x 32 tiles of A and B in shared memory.
//
// Idea: the 1024 threads of a block need only 32 rows of A and 32 columns of B between them. Each loads one element of either
// tile, and every element is then used 32 times from shared memory: global reads fall by the factor 32 (the tile's side). Two
// barriers a tile: nobody computes before all have loaded, nobody loads the next tile before all have computed. Bank conflicts:
// none; a warp reads one As element (broadcast) and 32 consecutive Bs elements. Limit: shared memory, 10 loads for 8
// FMAs (the compiler loads four elements of As at once). 8 KiB a block, 2 blocks (64 warps) an SM. Documents: 10 to 12 % of
// cuBLAS.
#include "lab/sgemm/access.cuh"

namespace xgemm::lab::sgemm::step_03 {

constexpr int kTile = 32;

__global__ void __launch_bounds__(kTile* kTile) kernel(const __grid_constant__ Problem p) {
  __shared__ float As[kTile][kTile], Bs[kTile][kTile];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int col_tiles = (p.n + kTile - 1) / kTile;
  const int row = static_cast<int>(blockIdx.x / col_tiles) * kTile + ty;
  const int col = static_cast<int>(blockIdx.x % col_tiles) * kTile + tx;

  float sum = 0;
  for (int k0 = 0; k0 < p.k; k0 += kTile) {
    // Threads outside C load too (zeros): every thread of the block must reach both barriers.
    As[ty][tx] = load(p.a, row, k0 + tx, p.m, p.k);
    Bs[ty][tx] = load(p.b, k0 + ty, col, p.k, p.n);
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += As[ty][i] * Bs[i][tx];
    __syncthreads();
  }
  store(p, row, col, sum);
}

const Step named({3}, "sgemm 03_shared_tile", kernel, kTile* kTile, [](const Problem& p, cudaStream_t stream) {
  kernel<<<ceil_div(p.m, kTile) * ceil_div(p.n, kTile), dim3(kTile, kTile), 0, stream>>>(p);
});

}  // namespace xgemm::lab::sgemm::step_03
