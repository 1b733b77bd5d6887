// Step 13a, TMA store: step 13 with a tile that leaves through shared memory, by stmatrix and TMA.
//
// Idea: wgmma leaves four bytes of a row in a lane, so that step 13's stores touch 16 bytes of a row at a time. stmatrix turns a
// warp's sums into rows of shared memory, swizzled as the tensor map says (no bank conflicts), and one thread starts the copy of
// a box of 64 x 64: whole rows of 128 bytes, no addresses, and no thread waits for it. Each consumer has two boxes and fills one
// while the other leaves; its next tile's products begin when the last box is filled, not when it has left. 225 KiB a block.
// Limit: rounding and filling still stop a consumer's tensor cores; the other consumer alone may use them meanwhile.
#include "device/numeric.cuh"
#include "device/ptx/stmatrix.cuh"
#include "lab/tensor/persistent.cuh"

namespace xgemm::lab::tensor::step_13a {

struct ByTma {
  __nv_bfloat16 boxes[2][2][kOutBoxRows][kBoxK];  // two a consumer

#ifdef XGEMM_LAB_HOPPER
  /// Two sums, rounded: a register of stmatrix.
  __device__ __forceinline__ static std::uint32_t pair(const float* sum) { return pack_pair<bf16>(sum[0], sum[1]); }

  __device__ __forceinline__ void store(const Problem& p, int consumer, int row, int col, const float (&sum)[128]) {
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32 % 4 * 16 + lane % 16;
    const bool leads = threadIdx.x % kWarpgroup == 0;
#pragma unroll
    for (int box = 0; box < kRingN / kBoxK; ++box) {
      auto& to = boxes[consumer][box % 2];
      if (leads) ptx::tma_store_wait_read<1>();  // the copy before the last has read this box
      ptx::named_barrier_sync(1 + consumer, kWarpgroup);
#pragma unroll
      for (int j = 0; j < kBoxK / 8; j += 2) {  // 16 rows of two pieces a warp
        const float* s = sum + 4 * (box * kBoxK / 8 + j);
        const int piece = (j + lane / 16) ^ (line % 8);
        ptx::store_matrices(ptx::shared_address(&to[line][piece * 8]), {pair(s), pair(s + 2), pair(s + 4), pair(s + 6)});
      }
      ptx::fence_async_shared();
      ptx::named_barrier_sync(1 + consumer, kWarpgroup);
      if (leads) {
        ptx::tma_store(&p.map_out, to, col + box * kBoxK, row, 0);
        ptx::tma_store_commit();
      }
    }
  }

  /// Shared memory stays until it has been read.
  __device__ __forceinline__ void finish() {
    if (threadIdx.x % kWarpgroup == 0) ptx::tma_store_wait_read<0>();
  }
#endif
};

const Step named({15}, "tensor 13a_tma_store", persistent_kernel<ByTma>, kRingThreads, launch_persistent<ByTma>,
                 sizeof(PersistentShared<ByTma>));

}  // namespace xgemm::lab::tensor::step_13a
