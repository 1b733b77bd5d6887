// Sheffield's lab 6: C = A B with one thread an element of C, row-major fp32, any sizes. 2 m n k operations.
//
// naive         every operand from global memory: 2 k loads an element.
// fixed         tile x tile blocks stage tiles of A and B in static shared memory: 1 / tile of the loads. Tile 8, 16 or 32.
// dynamic       the same with the tile known at run time only and shared memory of the size requiredSM() = 2 tile^2 floats.
//               The lab keeps the tile in __constant__ memory; here it is blockDim.x, which is safe on several streams at once.
// single_block  one block for the whole product, A and B wholly in shared memory; m, n <= 32 and 4 (m k + k n) <= 48 KiB.
// conflicting   fixed, tile 32, with B's tile stored transposed: a warp reads a column of a 32-wide array, 32 words in one
//               bank. Loads, registers and blocks an SM are those of fixed 32: only the banks differ.
// padded        the same with rows of 33 words: the column falls into 32 banks.
// uncontracted  fixed, tile 32, without multiply-adds (-fmad=false): product and sum are rounded each for itself.
//               The bits are those of a sequential loop in the order of k.
#include "lab/experiments/experiments.h"
#include "lab/sgemm/access.cuh"

namespace xgemm::lab::experiments {

using sgemm::load;

__device__ __forceinline__ void store(const Matrices& p, int row, int col, float value) {
  if (row < p.m && col < p.n) p.c[static_cast<std::int64_t>(row) * p.n + col] = value;
}

constexpr std::size_t kSharedPerThread = 2 * sizeof(float);  // of dynamic_kernel: an element of either tile

/// First row and column of this block's tile of C, in a 1-D grid.
struct Origin {
  int row, col;
};
__device__ __forceinline__ Origin origin(const Matrices& p, int tile) {
  const int across = (p.n + tile - 1) / tile;
  return {static_cast<int>(blockIdx.x / across) * tile, static_cast<int>(blockIdx.x % across) * tile};
}

__global__ void naive_kernel(const __grid_constant__ Matrices p) {
  const auto [row0, col0] = origin(p, blockDim.x);
  const int row = row0 + threadIdx.y, col = col0 + threadIdx.x;
  if (row >= p.m || col >= p.n) return;
  float sum = 0;
  for (int k = 0; k < p.k; ++k)
    sum += p.a[static_cast<std::int64_t>(row) * p.k + k] * p.b[static_cast<std::int64_t>(k) * p.n + col];
  store(p, row, col, sum);
}

template <int kTile, int kPad, bool kTransposedB, bool kContracted = true>
__global__ void fixed_kernel(const __grid_constant__ Matrices p) {
  __shared__ float As[kTile][kTile], Bs[kTile][kTile + kPad];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const auto [row0, col0] = origin(p, kTile);
  float sum = 0;
  for (int k0 = 0; k0 < p.k; k0 += kTile) {
    As[ty][tx] = load(p.a, row0 + ty, k0 + tx, p.m, p.k);
    (kTransposedB ? Bs[tx][ty] : Bs[ty][tx]) = load(p.b, k0 + ty, col0 + tx, p.k, p.n);
    __syncthreads();
    for (int k = 0; k < kTile; ++k) {
      const float a = As[ty][k];
      // volatile: else the compiler reads four neighbours of a row in one load, whose lanes conflict a quarter as much
      const float b = kTransposedB ? *static_cast<const volatile float*>(&Bs[tx][k]) : Bs[k][tx];
      sum = kContracted ? sum + a * b : __fadd_rn(sum, __fmul_rn(a, b));
    }
    __syncthreads();
  }
  store(p, row0 + ty, col0 + tx, sum);
}

__global__ void dynamic_kernel(const __grid_constant__ Matrices p) {
  extern __shared__ float shared[];
  const int tile = blockDim.x, tx = threadIdx.x, ty = threadIdx.y;
  float *As = shared, *Bs = shared + tile * tile;
  const auto [row0, col0] = origin(p, tile);
  float sum = 0;
  for (int k0 = 0; k0 < p.k; k0 += tile) {
    As[ty * tile + tx] = load(p.a, row0 + ty, k0 + tx, p.m, p.k);
    Bs[ty * tile + tx] = load(p.b, k0 + ty, col0 + tx, p.k, p.n);
    __syncthreads();
    for (int k = 0; k < tile; ++k) sum += As[ty * tile + k] * Bs[k * tile + tx];
    __syncthreads();
  }
  store(p, row0 + ty, col0 + tx, sum);
}

__global__ void single_block_kernel(const __grid_constant__ Matrices p) {
  extern __shared__ float shared[];
  float *As = shared, *Bs = shared + p.m * p.k;
  // The lab loads one element a thread and needs k <= n and k <= m for it; a loop takes any k that fits.
  const int t = threadIdx.y * p.n + threadIdx.x, threads = p.m * p.n;
  for (int i = t; i < p.m * p.k; i += threads) As[i] = p.a[i];
  for (int i = t; i < p.k * p.n; i += threads) Bs[i] = p.b[i];
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < p.k; ++k) sum += As[threadIdx.y * p.k + k] * Bs[k * p.n + threadIdx.x];
  store(p, threadIdx.y, threadIdx.x, sum);
}

constexpr std::size_t shared_of(std::int64_t tile) { return kSharedPerThread * static_cast<std::size_t>(tile * tile); }
const NameKernel named_tilings[] = {{"tiled naive 8", naive_kernel, 64},
                                    {"tiled fixed 8", fixed_kernel<8, 0, false>, 64},
                                    {"tiled fixed 16", fixed_kernel<16, 0, false>, 256},
                                    {"tiled fixed 32", fixed_kernel<32, 0, false>, 1024},
                                    {"tiled dynamic 8", dynamic_kernel, 64, shared_of(8), kSharedPerThread},
                                    {"tiled dynamic 16", dynamic_kernel, 256, shared_of(16), kSharedPerThread},
                                    {"tiled dynamic 32", dynamic_kernel, 1024, shared_of(32), kSharedPerThread},
                                    {"tiled single_block 32", single_block_kernel, 1024, shared_of(32)},
                                    {"tiled conflicting 32", fixed_kernel<32, 0, true>, 1024},
                                    {"tiled padded 32", fixed_kernel<32, 1, true>, 1024},
                                    {"tiled uncontracted 32", fixed_kernel<32, 0, false, false>, 1024}};

}  // namespace xgemm::lab::experiments
