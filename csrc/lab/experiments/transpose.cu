// The transpose ladder: out[c][r] = in[r][c] of a row-major float matrix of any shape. Floor: 8 bytes an element.
//
// A block of 32 x 8 threads moves a tile of 32 x 32; the steps differ in what lies between its load and its store.
// naive     nothing: a warp loads 32 neighbours and stores them `rows` elements apart, 32 sectors for 128 bytes.
// tiled     the tile in shared memory ("corner turning"): a warp stores a row of `out`, which is a column of the tile. Now global
//           memory sees whole lines, but the 32 words of a column lie in one bank: 32 passes a request.
// padded    rows of 33 words: a column falls into 32 banks, for 128 bytes more.
// swizzled  row y keeps word x at x ^ y: rows and columns both fall into 32 banks, for nothing (as in TMA's and wgmma's tiles).
#include "lab/experiments/experiments.h"

namespace xgemm::lab::experiments {

constexpr int kTransposeTile = 32, kThreadRows = kThreads / kTransposeTile;

enum class Transposition { naive, tiled, padded, swizzled };

template <Transposition kStep>
__global__ void __launch_bounds__(kThreads) transpose_kernel(const float* in, float* out, std::int64_t rows, std::int64_t cols) {
  constexpr bool kNaive = kStep == Transposition::naive, kSwizzled = kStep == Transposition::swizzled;
  __shared__ float tile[kNaive ? 1 : kTransposeTile][kTransposeTile + (kStep == Transposition::padded)];
  const std::int64_t across = (cols + kTransposeTile - 1) / kTransposeTile, row0 = blockIdx.x / across * kTransposeTile,
                     col0 = blockIdx.x % across * kTransposeTile;
  const int x = threadIdx.x;
#pragma unroll
  for (int y = threadIdx.y; y < kTransposeTile; y += kThreadRows)
    if (row0 + y < rows && col0 + x < cols) {
      const float value = in[(row0 + y) * cols + col0 + x];
      if constexpr (kNaive)
        out[(col0 + x) * rows + row0 + y] = value;
      else
        tile[y][kSwizzled ? x ^ y : x] = value;
    }
  if constexpr (!kNaive) {
    __syncthreads();
#pragma unroll
    for (int y = threadIdx.y; y < kTransposeTile; y += kThreadRows)
      if (col0 + y < cols && row0 + x < rows) out[(col0 + y) * rows + row0 + x] = tile[x][kSwizzled ? y ^ x : y];
  }
}

const NameKernel named_transposes[] = {{"transpose 01_naive", transpose_kernel<Transposition::naive>, kThreads},
                                       {"transpose 02_tiled", transpose_kernel<Transposition::tiled>, kThreads},
                                       {"transpose 03_padded", transpose_kernel<Transposition::padded>, kThreads},
                                       {"transpose 04_swizzled", transpose_kernel<Transposition::swizzled>, kThreads}};

}  // namespace xgemm::lab::experiments
