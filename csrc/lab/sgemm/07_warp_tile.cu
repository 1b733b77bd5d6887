// Step 07, warp tile: a level between block and thread (siboehm's kernel 10).
//
// Idea: a warp owns a compact 64 x 64 square of the block's 128 x 128 tile, and walks it in four slabs of 64 x 16 in which each
// lane owns 8 x 4. Then the 32 lanes of a warp read 64 values of A and 16 of B at a time, all in broadcasts, and a lane does 128
// FMAs for 24 shared floats (0.19 a FMA; step 06: 0.25). Four warps, 128 sums a lane. The tile of A gets 4 floats of padding a
// row, so that the transposing stores conflict 2 ways instead of 4; its loads conflict 2 ways as well (a lane's 8 rows are
// neighbours, so that a load of 16 bytes a lane takes every other 16 of 256 bytes). Limit: loads of the next tile
// wait for the barrier; the library's kernel (step 08) overlaps them with the arithmetic. 16.3 KiB a block. Document: 94 % of
// cuBLAS on an A6000.
#include "lab/sgemm/warp_tile.cuh"

namespace xgemm::lab::sgemm::step_07 {

/// Four floats of padding a row; a lane's 8 rows are neighbours.
struct Layout {
  static constexpr int kApart = 4, kPad = 4;
  alignas(16) float rows[kBK][kBM + kPad];
  __device__ __forceinline__ float* at(int k, int more, int row) { return &rows[4 * k + more][row]; }
};

const Step named({7}, "sgemm 07_warp_tile", warp_tile_kernel<true, Layout>, kThreads, launch_warp_tiles<Layout>);

}  // namespace xgemm::lab::sgemm::step_07
