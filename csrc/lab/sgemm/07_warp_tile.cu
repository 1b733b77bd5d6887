// Step 07, warp tile: a level between block and thread (siboehm's kernel 10).
//
// Idea: a warp owns a compact 64 x 64 square of the block's 128 x 128 tile, and walks it in four slabs of 64 x 16 in which each
// lane owns 8 x 4. Then the 32 lanes of a warp read 64 values of A and 16 of B at a time, all in broadcasts, and a lane does 128
// FMAs for 24 shared floats (0.19 a FMA; step 06: 0.25). Four warps, 128 sums a lane. The tile of A gets 4 floats of padding a
// row, so that the transposing stores conflict 2 ways instead of 4; its loads conflict 2 ways as well (a lane's 8 rows are
// neighbours, so that a load of 16 bytes a lane takes every other 16 of 256 bytes). Limit: loads of the next tile
// wait for the barrier; the library's kernel (step 08) overlaps them with the arithmetic. 16.3 KiB a block. Document: 94 % of
// cuBLAS on an A6000.
#include "lab/kernels.h"
#include "lab/sgemm/access.cuh"

namespace xgemm::lab::sgemm {
namespace step_07 {

constexpr int kBM = 128, kBN = 128, kBK = 16;  // the block's tile
constexpr int kWM = 64, kWN = 64;              // the warp's tile
constexpr int kSlabN = 16, kSlabs = kWN / kSlabN;
constexpr int kTM = 8, kTN = 4;  // the lane's part of a slab
constexpr int kPad = 4;
constexpr int kThreads = (kBM / kWM) * (kBN / kWN) * 32;
static_assert((kWM / kTM) * (kSlabN / kTN) == 32, "a slab is one lane's part times 32 lanes");

template <bool kVector>
__global__ void __launch_bounds__(kThreads, 3) kernel(const __grid_constant__ Problem p) {
  __shared__ alignas(16) float As[kBK][kBM + kPad];  // transposed
  __shared__ alignas(16) float Bs[kBK][kBN];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  const int col_tiles = (p.n + kBN - 1) / kBN;
  const int row0 = static_cast<int>(blockIdx.x / col_tiles) * kBM, col0 = static_cast<int>(blockIdx.x % col_tiles) * kBN;
  const int row = warp / (kBN / kWN) * kWM + lane / (kSlabN / kTN) * kTM;  // of the lane, inside the block's tile
  const int col = warp % (kBN / kWN) * kWN + lane % (kSlabN / kTN) * kTN;

  float sum[kSlabs][kTM][kTN] = {};
  for (int k0 = 0; k0 < p.k; k0 += kBK) {
#pragma unroll 2  // all at once would cost the registers of another block on the SM
    for (int i = t; i < kBM * kBK / 4; i += kThreads) {
      const int r = i / (kBK / 4), c = i % (kBK / 4) * 4;
      const Float4 v = load4<kVector>(p.a, row0 + r, k0 + c, p.m, p.k);
#pragma unroll
      for (int j = 0; j < 4; ++j) As[c + j][r] = v[j];
    }
#pragma unroll 2
    for (int i = t; i < kBK * kBN / 4; i += kThreads) {
      const int r = i / (kBN / 4), c = i % (kBN / 4) * 4;
      store_vector(&Bs[r][c], load4<kVector>(p.b, k0 + r, col0 + c, p.k, p.n));
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kBK; ++i) {
      Float4 a[kTM / 4], b[kSlabs];
#pragma unroll
      for (int r = 0; r < kTM / 4; ++r) a[r] = load_vector<4>(&As[i][row + 4 * r]);
#pragma unroll
      for (int s = 0; s < kSlabs; ++s) b[s] = load_vector<4>(&Bs[i][col + s * kSlabN]);
#pragma unroll
      for (int s = 0; s < kSlabs; ++s)
#pragma unroll
        for (int r = 0; r < kTM; ++r)
#pragma unroll
          for (int c = 0; c < kTN; ++c) sum[s][r][c] += a[r / 4][r % 4] * b[s][c];
    }
    __syncthreads();
  }
#pragma unroll
  for (int s = 0; s < kSlabs; ++s)
#pragma unroll
    for (int r = 0; r < kTM; ++r) store4<kVector>(p, row0 + row + r, col0 + col + s * kSlabN, sum[s][r]);
}

const NameKernel named("sgemm 07_warp_tile", kernel<true>, kThreads);

}  // namespace step_07

void warp_tile(const Problem& p, cudaStream_t stream) {
  using namespace step_07;
  const unsigned grid = ceil_div(p.m, kBM) * ceil_div(p.n, kBN);
  if (is_vectorisable(p))
    kernel<true><<<grid, kThreads, 0, stream>>>(p);
  else
    kernel<false><<<grid, kThreads, 0, stream>>>(p);
}

}  // namespace xgemm::lab::sgemm
