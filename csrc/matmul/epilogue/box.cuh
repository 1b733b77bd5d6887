// What the stores of a tile through shared memory and TMA share.
#pragma once
#include "device/ptx/tma.cuh"
#include "device/ptx/warpgroup.cuh"
#include "device/vector.cuh"
#include "matmul/epilogue/apply.cuh"

namespace xgemm::matmul::wgmma_detail {

/// Two neighbouring results, rounded: a register of stmatrix.
template <class Out>
__device__ __forceinline__ std::uint32_t rounded_pair(float first, float second) {
  return __builtin_bit_cast(std::uint32_t, Vector<Out, 2>{{convert<Out>(first), convert<Out>(second)}});
}

/// Called by a warp before it writes one of two buffers in turns; `first`: the tile's first. The store before the previous one
/// read this buffer; a previous tile may have ended with either buffer, a main loop ago.
__device__ __forceinline__ void wait_for_buffer(bool first) {
  if (ptx::elect_one()) first ? ptx::tma_store_wait_read<0>() : ptx::tma_store_wait_read<1>();
  __syncwarp();
}

}  // namespace xgemm::matmul::wgmma_detail
