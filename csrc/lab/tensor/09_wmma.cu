// Step 09, WMMA naive: a warp computes a 16 x 16 tile of C with nvcuda::wmma, operands straight from global memory.
//
// Idea: one instruction of a warp now does 16 x 16 x 16 multiply-adds, 128 an instruction and lane instead of 1. Limit: as step
// 01's, bytes: each tile reads 2 x 16 rows of k for itself, 1 byte for 4 multiply-adds, so L1 and L2 feed it at a few per cent of
// the peak.
#include <mma.h>

#include <cstdint>

#include "lab/tensor/tensor.h"

namespace xgemm::lab::tensor::step_09 {

constexpr int kTile = 16, kWarps = 4;

__global__ void __launch_bounds__(kWarps * 32) kernel(const __grid_constant__ Problem p) {
  using namespace nvcuda::wmma;
  __shared__ float tiles[kWarps][kTile * kTile];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = blockIdx.y * kTile, col = (blockIdx.x * kWarps + warp) * kTile;
  const __nv_bfloat16 *a = p.a + static_cast<std::int64_t>(row) * p.k, *b = p.b + static_cast<std::int64_t>(col) * p.k;
  fragment<accumulator, kTile, kTile, kTile, float> sum;
  fill_fragment(sum, 0.0f);
  for (int k = 0; k < p.k; k += kTile) {
    fragment<matrix_a, kTile, kTile, kTile, __nv_bfloat16, row_major> fa;
    fragment<matrix_b, kTile, kTile, kTile, __nv_bfloat16, col_major> fb;  // rows of B are columns of B^T
    load_matrix_sync(fa, a + k, p.k);
    load_matrix_sync(fb, b + k, p.k);
    mma_sync(sum, fa, fb, sum);
  }
  // Which lane holds which element of a fragment is not said, so the tile goes through shared memory to be rounded.
  store_matrix_sync(tiles[warp], sum, kTile, mem_row_major);
  __syncwarp();
  for (int i = lane; i < kTile * kTile; i += 32)
    p.out[static_cast<std::int64_t>(row + i / kTile) * p.n + col + i % kTile] = __float2bfloat16_rn(tiles[warp][i]);
}

const Step named = step<kernel, kTile, kTile * kWarps, kWarps * 32>(9, "tensor 09_wmma");

}  // namespace xgemm::lab::tensor::step_09
