// What steps 10 and 11a share: a tile of 128 x 64 in shared memory, filled by cp.async. Row r keeps its 16-byte piece c at
// c ^ (r % 8): no bank conflicts for cp.async and ldmatrix, and the layout that wgmma calls a swizzle of 128 bytes.
#pragma once
#include "device/ptx/cp_async.cuh"
#include "lab/tensor/tensor.h"

namespace xgemm::lab::tensor {

using Tile = __nv_bfloat16[kBoxRows][kBoxK];
inline constexpr int kPieces = kBoxK / 8;  // of a row

__device__ __forceinline__ __nv_bfloat16* piece(Tile& tile, int row, int c) { return &tile[row][(c ^ (row % 8)) * 8]; }

/// Starts the copies of 128 rows of 64 elements, `k` apart, by kThreads threads.
template <int kThreads>
__device__ __forceinline__ void load(Tile& tile, const __nv_bfloat16* from, int k) {
#pragma unroll
  for (int i = threadIdx.x; i < kBoxRows * kPieces; i += kThreads)
    cp_async<16>(piece(tile, i / kPieces, i % kPieces), from + static_cast<std::int64_t>(i / kPieces) * k + i % kPieces * 8, 16);
}

}  // namespace xgemm::lab::tensor
