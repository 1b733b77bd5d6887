// Step 07b, double buffering: step 07a with a prefetch of the next tile (siboehm's kernels 11 and 12).
//
// Idea: two buffers. A step starts the copies of the next tile, multiplies the present one, and only then waits. cp.async copies
// from global to shared memory without registers. One barrier a step instead of two: no thread writes a buffer that another
// thread still reads. A is transposed by copying single elements (4 bytes; B: 16): a warp copies 4 columns of 8 rows, and a row
// of As is 136 floats, so that the 32 elements fall into 32 banks. Limit: FMA units, and shared memory at 0.19 floats an FMA;
// the library's kernel (step 08) has more buffers. 33 KiB a block; needs compute capability 8.0.
// Document: 74 % of cuBLAS on an A6000, less than its step without, with copies through registers.
#include "device/ptx/cp_async.cuh"
#include "lab/sgemm/warp_tile.cuh"

namespace xgemm::lab::sgemm::step_07b {

constexpr int kPad = 8, kApart = kWM / (kTM / 4);  // as in 07a

struct Tiles {
  alignas(16) float a[kBK][kBM + kPad];  // transposed
  alignas(16) float b[kBK][kBN];
};

/// Starts this thread's copies of the tiles at k0; elements outside of the matrices become zeros.
template <bool kVector>
__device__ __forceinline__ void fetch(Tiles& tiles, const Problem& p, int row0, int col0, int k0) {
  const int t = threadIdx.x, k = t % 4;
#pragma unroll 1  // its addresses would cost registers
  for (int r = t / 4; r < kBM; r += kThreads / 4) {
    const bool exists = row0 + r < p.m;
    const float* from = p.a + (exists ? static_cast<std::int64_t>(row0 + r) * p.k : 0) + k0 + k;
#pragma unroll
    for (int c = 0; c < kBK; c += 4) cp_async<4>(&tiles.a[c + k][r], from + c, exists && k0 + k + c < p.k ? 4 : 0);
  }
  constexpr int kWidth = kVector ? 4 : 1;
#pragma unroll 1
  for (int i = t; i < kBK * kBN / kWidth; i += kThreads) {
    const int r = i / (kBN / kWidth), c = i % (kBN / kWidth) * kWidth;
    const bool exists = k0 + r < p.k && col0 + c < p.n;
    const float* from = p.b + (exists ? static_cast<std::int64_t>(k0 + r) * p.n + col0 + c : 0);
    cp_async<4 * kWidth>(&tiles.b[r][c], from, exists ? 4 * kWidth : 0);
  }
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kVector ? 3 : 2) kernel(const __grid_constant__ Problem p) {
  __shared__ Tiles buffers[2];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  const int col_tiles = (p.n + kBN - 1) / kBN;
  const int row0 = static_cast<int>(blockIdx.x / col_tiles) * kBM, col0 = static_cast<int>(blockIdx.x % col_tiles) * kBN;
  const int row = warp / (kBN / kWN) * kWM + lane / (kSlabN / kTN) * 4;  // of the lane's first group, inside the block's tile
  const int col = warp % (kBN / kWN) * kWN + lane % (kSlabN / kTN) * kTN;

  Sums sum = {};
  if (p.k > 0) fetch<kVector>(buffers[0], p, row0, col0, 0);
  for (int k0 = 0; k0 < p.k; k0 += kBK) {
    const Tiles& tiles = buffers[k0 / kBK % 2];
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();  // this tile is complete, and no thread reads the other buffer any more
    if (k0 + kBK < p.k) fetch<kVector>(buffers[k0 / kBK % 2 ^ 1], p, row0, col0, k0 + kBK);
#pragma unroll
    for (int i = 0; i < kBK; ++i) multiply(sum, [&](int r) { return &tiles.a[i][row + kApart * r]; }, &tiles.b[i][col]);
  }
  store<kVector, kApart>(p, row0 + row, col0 + col, sum);
}

const Step named({9}, "sgemm 07b_double_buffer", kernel<true>, kThreads,
                 launch_tiles<kernel<true>, kernel<false>, kBM, kBN, kThreads>);

}  // namespace xgemm::lab::sgemm::step_07b
