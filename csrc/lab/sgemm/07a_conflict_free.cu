// Step 07a, no bank conflicts: step 07 with another layout of A in shared memory (siboehm's kernels 7 and 8).
//
// Idea: the 32 lanes of a warp access 32 different banks. Step 07's transposing stores conflict 2 ways, because its lanes hold 8
// rows of A and 4 groups of k. Here 8 unused floats follow every four rows of As, so that a lane's bank is 8 (k / 4) + row modulo
// 32; padding each row instead would break the 16-byte alignment of the loads. A lane owns two groups of 4 rows that are 32 rows
// apart, not 8 neighbouring rows: a warp's load of A reads 128 contiguous bytes, where step 07's spans 256. B's accesses had no
// conflicts. Everything else is step 07, also the order of the sums. Limit: loads of the next tile wait for the barrier, as
// there. 16.1 KiB a block. Document: 70 to 71 % of cuBLAS on an A6000, without warp tiles.
#include "lab/kernels.h"
#include "lab/sgemm/access.cuh"

namespace xgemm::lab::sgemm {
namespace step_07a {

constexpr int kBM = 128, kBN = 128, kBK = 16;  // the block's tile
constexpr int kWM = 64, kWN = 64;              // the warp's tile
constexpr int kSlabN = 16, kSlabs = kWN / kSlabN;
constexpr int kTM = 8, kTN = 4;          // the lane's part of a slab: two groups of 4 rows
constexpr int kApart = kWM / (kTM / 4);  // rows between a lane's groups
constexpr int kSkew = 8;                 // floats after each four rows of As
constexpr int kThreads = (kBM / kWM) * (kBN / kWN) * 32;
static_assert((kWM / kTM) * (kSlabN / kTN) == 32, "a slab is one lane's part times 32 lanes");

template <bool kVector>
__global__ void __launch_bounds__(kThreads, 3) kernel(const __grid_constant__ Problem p) {
  __shared__ alignas(16) float As[kBK / 4][4 * kBM + kSkew];  // transposed: column k in As[k / 4] from k % 4 * kBM on
  __shared__ alignas(16) float Bs[kBK][kBN];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  const int col_tiles = (p.n + kBN - 1) / kBN;
  const int row0 = static_cast<int>(blockIdx.x / col_tiles) * kBM, col0 = static_cast<int>(blockIdx.x % col_tiles) * kBN;
  const int row = warp / (kBN / kWN) * kWM + lane / (kSlabN / kTN) * 4;  // of the lane's first group, inside the block's tile
  const int col = warp % (kBN / kWN) * kWN + lane % (kSlabN / kTN) * kTN;

  float sum[kSlabs][kTM][kTN] = {};
  for (int k0 = 0; k0 < p.k; k0 += kBK) {
#pragma unroll 2  // all at once would cost the registers of another block on the SM
    for (int i = t; i < kBM * kBK / 4; i += kThreads) {
      const int r = i / (kBK / 4), c = i % (kBK / 4);
      const Float4 v = load4<kVector>(p.a, row0 + r, k0 + 4 * c, p.m, p.k);
#pragma unroll
      for (int j = 0; j < 4; ++j) As[c][j * kBM + r] = v[j];
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
      for (int r = 0; r < kTM / 4; ++r) a[r] = load_vector<4>(&As[i / 4][i % 4 * kBM + row + kApart * r]);
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
    for (int r = 0; r < kTM; ++r) store4<kVector>(p, row0 + row + r / 4 * kApart + r % 4, col0 + col + s * kSlabN, sum[s][r]);
}

const NameKernel named("sgemm 07a_conflict_free", kernel<true>, kThreads);

}  // namespace step_07a

void conflict_free(const Problem& p, cudaStream_t stream) {
  using namespace step_07a;
  const unsigned grid = ceil_div(p.m, kBM) * ceil_div(p.n, kBN);
  if (is_vectorisable(p))
    kernel<true><<<grid, kThreads, 0, stream>>>(p);
  else
    kernel<false><<<grid, kThreads, 0, stream>>>(p);
}

}  // namespace xgemm::lab::sgemm
