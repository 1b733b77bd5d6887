// v9, cooperative groups: v7's sums by the library that comes with CUDA, and a barrier of the whole grid in place of a counter.
//
// Idea: groups are objects. cg::reduce adds over a warp (for ints by one redux.sync instruction), block.sync() is __syncthreads,
// and grid.sync() waits for all blocks: then block 0 adds the partial sums. A barrier of the grid needs every block to be
// resident, which a cooperative launch checks. Limit: memory bandwidth; all blocks wait for the slowest, where v8's leave.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "lab/reduction/grid_stride.cuh"

namespace xgemm::lab::reduction {

namespace cg = cooperative_groups;

/// The sum over a block, in thread 0. Between two calls in a kernel there is a barrier of the block.
template <class T>
__device__ __forceinline__ T sum_of(const cg::thread_block& block, T mine) {
  __shared__ T of_warp[kThreads / kWarpSize];
  const auto warp = cg::tiled_partition<kWarpSize>(block);
  mine = cg::reduce(warp, mine, cg::plus<T>());
  if (warp.thread_rank() == 0) of_warp[warp.meta_group_rank()] = mine;
  block.sync();
  mine = warp.thread_rank() < warp.meta_group_size() ? of_warp[warp.thread_rank()] : T{};
  return warp.meta_group_rank() == 0 ? cg::reduce(warp, mine, cg::plus<T>()) : mine;
}

template <int kLoads, class T>
__global__ void __launch_bounds__(kThreads) cooperative_groups_kernel(const T* in, T* partials, T* out, std::int64_t n) {
  const cg::grid_group grid = cg::this_grid();
  const cg::thread_block block = cg::this_thread_block();
  T sum = sum_of(block, grid_stride_sum<kLoads>(in, n));
  if (block.thread_rank() == 0) partials[blockIdx.x] = sum;
  grid.sync();
  if (blockIdx.x > 0) return;
  sum = {};
  for (unsigned i = block.thread_rank(); i < gridDim.x; i += kThreads) sum += partials[i];
  sum = sum_of(block, sum);
  if (block.thread_rank() == 0) *out = sum;
}

template <class T>
void launch(void (*kernel)(const T*, T*, T*, std::int64_t), const Pass<T>& p) {
  int resident = 0;  // blocks an SM
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kThreads, 0);
  const std::int64_t most = std::int64_t{resident} * p.sm_count;
  cudaLaunchAttribute cooperative{};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(p.blocks < most ? p.blocks : most));
  config.blockDim = dim3(kThreads);
  config.stream = p.stream;
  config.attrs = &cooperative;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, p.in, p.partials, p.out, p.n);
}

const Version v9 = version<cooperative_groups_kernel<8, float>, cooperative_groups_kernel<8, Int>>(
                  {9, 8}, "reduction v9_cooperative_groups"),
              v9b = version<cooperative_groups_kernel<2, float>, cooperative_groups_kernel<2, Int>>({9, 2},
                                                                                                    "reduction v9, two loads");

}  // namespace xgemm::lab::reduction
