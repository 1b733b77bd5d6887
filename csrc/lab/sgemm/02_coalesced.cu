// Step 02, coalesced: step 01 with threadIdx.x and threadIdx.y swapped.
//
// Idea: the lanes of a warp now hold 32 consecutive COLUMNS of one row. In each step of k they read 32 neighbours of B, which is
// one 128-byte line, and one element of A that all share. Same arithmetic, same bits as step 01; 4 sectors a request instead
// of 32. Limit: two loads for one FMA, so the load/store unit is busy long before the FMA units are. The document saw 9 % of
// cuBLAS.
#include "lab/sgemm/access.cuh"

namespace xgemm::lab::sgemm::step_02 {

constexpr int kTile = 32;

__global__ void __launch_bounds__(kTile* kTile) kernel(const __grid_constant__ Problem p) {
  const int col_tiles = (p.n + kTile - 1) / kTile;
  const int row = static_cast<int>(blockIdx.x / col_tiles) * kTile + threadIdx.y;
  const int col = static_cast<int>(blockIdx.x % col_tiles) * kTile + threadIdx.x;
  if (row >= p.m || col >= p.n) return;

  const float* a = p.a + static_cast<std::int64_t>(row) * p.k;
  const float* b = p.b + col;
  float sum = 0;
  for (int i = 0; i < p.k; ++i) sum += a[i] * b[static_cast<std::int64_t>(i) * p.n];
  store(p, row, col, sum);
}

const Step named({2}, "sgemm 02_coalesced", kernel, kTile* kTile, [](const Problem& p, cudaStream_t stream) {
  kernel<<<ceil_div(p.m, kTile) * ceil_div(p.n, kTile), dim3(kTile, kTile), 0, stream>>>(p);
});

}  // namespace xgemm::lab::sgemm::step_02
