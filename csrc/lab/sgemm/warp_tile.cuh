// What steps 07 to 07b share: the warp's tile in slabs, a lane's part of it, and (07, 07a) the kernel around a layout of A.
#pragma once
#include "lab/sgemm/access.cuh"

namespace xgemm::lab::sgemm {

constexpr int kBM = 128, kBN = 128, kBK = 16;  // the block's tile
constexpr int kWM = 64, kWN = 64;              // the warp's tile
constexpr int kSlabN = 16, kSlabs = kWN / kSlabN;
constexpr int kTM = 8, kTN = 4;  // the lane's part of a slab
constexpr int kThreads = (kBM / kWM) * (kBN / kWN) * 32;
static_assert((kWM / kTM) * (kSlabN / kTN) == 32, "a slab is one lane's part times 32 lanes");
using Sums = float[kSlabs][kTM][kTN];

/// sum += one column of A times one row of B; a_at(r): where the lane's four values of group r are.
template <class At>
__device__ __forceinline__ void multiply(Sums& sum, const At& a_at, const float* b_row) {
  Float4 a[kTM / 4], b[kSlabs];
#pragma unroll
  for (int r = 0; r < kTM / 4; ++r) a[r] = load_vector<4>(a_at(r));
#pragma unroll
  for (int s = 0; s < kSlabs; ++s) b[s] = load_vector<4>(b_row + s * kSlabN);
#pragma unroll
  for (int s = 0; s < kSlabs; ++s)
#pragma unroll
    for (int r = 0; r < kTM; ++r)
#pragma unroll
      for (int c = 0; c < kTN; ++c) sum[s][r][c] += a[r / 4][r % 4] * b[s][c];
}

/// The lane's two groups of 4 rows, kApart rows from one to the other, from (row, col) on.
template <bool kVector, int kApart>
__device__ __forceinline__ void store(const Problem& p, int row, int col, const Sums& sum) {
#pragma unroll
  for (int s = 0; s < kSlabs; ++s)
#pragma unroll
    for (int r = 0; r < kTM; ++r) store4<kVector>(p, row + r / 4 * kApart + r % 4, col + s * kSlabN, sum[s][r]);
}

/// Layout: how the tile of A lies in shared memory, transposed; at(k / 4, k % 4, row) is an element of it.
template <bool kVector, class Layout>
__global__ void __launch_bounds__(kThreads, 3) warp_tile_kernel(const __grid_constant__ Problem p) {
  __shared__ Layout As;
  __shared__ alignas(16) float Bs[kBK][kBN];
  constexpr int kApart = Layout::kApart;
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  const int col_tiles = (p.n + kBN - 1) / kBN;
  const int row0 = static_cast<int>(blockIdx.x / col_tiles) * kBM, col0 = static_cast<int>(blockIdx.x % col_tiles) * kBN;
  const int row = warp / (kBN / kWN) * kWM + lane / (kSlabN / kTN) * (kApart == 4 ? kTM : 4);  // inside the block's tile
  const int col = warp % (kBN / kWN) * kWN + lane % (kSlabN / kTN) * kTN;

  Sums sum = {};
  for (int k0 = 0; k0 < p.k; k0 += kBK) {
#pragma unroll 2  // all at once would cost the registers of another block on the SM
    for (int i = t; i < kBM * kBK / 4; i += kThreads) {
      const int r = i / (kBK / 4), c = i % (kBK / 4);
      const Float4 v = load4<kVector>(p.a, row0 + r, k0 + 4 * c, p.m, p.k);
#pragma unroll
      for (int j = 0; j < 4; ++j) *As.at(c, j, r) = v[j];
    }
#pragma unroll 2
    for (int i = t; i < kBK * kBN / 4; i += kThreads) {
      const int r = i / (kBN / 4), c = i % (kBN / 4) * 4;
      store_vector(&Bs[r][c], load4<kVector>(p.b, k0 + r, col0 + c, p.k, p.n));
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kBK; ++i) multiply(sum, [&](int r) { return As.at(i / 4, i % 4, row + kApart * r); }, &Bs[i][col]);
    __syncthreads();
  }
  store<kVector, kApart>(p, row0 + row, col0 + col, sum);
}

template <class Layout>
constexpr auto launch_warp_tiles =
    launch_tiles<warp_tile_kernel<true, Layout>, warp_tile_kernel<false, Layout>, kBM, kBN, kThreads>;

}  // namespace xgemm::lab::sgemm
