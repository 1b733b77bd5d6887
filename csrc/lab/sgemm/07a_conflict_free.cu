// Step 07a, no bank conflicts: step 07 with another layout of A in shared memory (siboehm's kernels 7 and 8).
//
// Idea: the 32 lanes of a warp access 32 different banks. Step 07's transposing stores conflict 2 ways, because its lanes hold 8
// rows of A and 4 groups of k. Here 8 unused floats follow every four rows of As, so that a lane's bank is 8 (k / 4) + row modulo
// 32; padding each row instead would break the 16-byte alignment of the loads. A lane owns two groups of 4 rows that are 32 rows
// apart, not 8 neighbouring rows: a warp's load of A reads 128 contiguous bytes, where step 07's spans 256. B's accesses had no
// conflicts. Everything else is step 07, also the order of the sums. Limit: loads of the next tile wait for the barrier, as
// there. 16.1 KiB a block. Document: 70 to 71 % of cuBLAS on an A6000, without warp tiles.
#include "lab/sgemm/warp_tile.cuh"

namespace xgemm::lab::sgemm::step_07a {

struct Layout {
  static constexpr int kApart = kWM / (kTM / 4);  // rows between a lane's groups
  static constexpr int kSkew = 8;                 // floats after each four rows
  alignas(16) float groups[kBK / 4][4 * kBM + kSkew];
  __device__ __forceinline__ float* at(int k, int more, int row) { return &groups[k][more * kBM + row]; }
};

const Step named({8}, "sgemm 07a_conflict_free", warp_tile_kernel<true, Layout>, kThreads, launch_warp_tiles<Layout>);

}  // namespace xgemm::lab::sgemm::step_07a
