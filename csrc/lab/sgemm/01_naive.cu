// Step 01, naive: one thread an element of C, the row from threadIdx.x.
//
// Idea: the definition, written down. A warp is 32 consecutive threadIdx.x, so its lanes hold 32 consecutive ROWS of one column:
// in each step of k they read A with stride k (32 different sectors for 32 floats) and one element of B that all share.
// Traffic asked of the memory system: m n (2 k 4 + 4) bytes, 512 GiB at 4096^3; the caches absorb most of it.
// Limit: load/store unit and L1, which serve 32 sectors a request where 4 would do. The document saw 1 % of cuBLAS on an RTX
// 3090.
#include "lab/sgemm/access.cuh"

namespace xgemm::lab::sgemm::step_01 {

constexpr int kTile = 32;  // 32 x 32 threads, the document's block

__global__ void __launch_bounds__(kTile* kTile) kernel(const __grid_constant__ Problem p) {
  // A 1-D grid, because gridDim.y ends at 65535; consecutive blocks go down the rows, as blockIdx.x does in the document.
  const int row_tiles = (p.m + kTile - 1) / kTile;
  const int row = static_cast<int>(blockIdx.x % row_tiles) * kTile + threadIdx.x;
  const int col = static_cast<int>(blockIdx.x / row_tiles) * kTile + threadIdx.y;
  if (row >= p.m || col >= p.n) return;

  const float* a = p.a + static_cast<std::int64_t>(row) * p.k;
  const float* b = p.b + col;
  float sum = 0;
  for (int i = 0; i < p.k; ++i) sum += a[i] * b[static_cast<std::int64_t>(i) * p.n];
  store(p, row, col, sum);
}

const Step named({1}, "sgemm 01_naive", kernel, kTile* kTile, [](const Problem& p, cudaStream_t stream) {
  kernel<<<ceil_div(p.m, kTile) * ceil_div(p.n, kTile), dim3(kTile, kTile), 0, stream>>>(p);
});

}  // namespace xgemm::lab::sgemm::step_01
