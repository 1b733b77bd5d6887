// v8, a single pass: the block that finishes last adds the partial sums (cuda-samples' threadFenceReduction).
//
// Idea: v0 to v7 launch again over the partial sums, since blocks cannot wait for each other. Here each block, when its partial
// sum is written, takes a ticket from a counter; whoever takes the last one knows that all are written, and adds them. The fence
// before the ticket makes the partial sum visible before the count; without it the last block may read what is not there yet.
// Which block is last differs from run to run, the order of additions does not. Limit: memory bandwidth, as v7; a launch less,
// and the counter must be zero before and after.
#include "lab/reduction/grid_stride.cuh"

namespace xgemm::lab::reduction {

template <int kLoads, class T>
__global__ void __launch_bounds__(kThreads)
    last_block_kernel(const T* in, T* partials, T* out, unsigned* counter, std::int64_t n) {
  __shared__ bool last;
  T sum = block_sum(grid_stride_sum<kLoads>(in, n));
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = sum;
    __threadfence();
    last = atomicAdd(counter, 1) == gridDim.x - 1;
    __threadfence();  // what the other blocks wrote before their tickets is visible behind this one
  }
  __syncthreads();
  if (!last) return;
  sum = {};
  for (unsigned i = threadIdx.x; i < gridDim.x; i += kThreads) sum += __ldcg(&partials[i]);  // not from L1
  sum = block_sum(sum);
  if (threadIdx.x == 0) *out = sum, *counter = 0;
}

template <class T>
void launch(void (*kernel)(const T*, T*, T*, unsigned*, std::int64_t), const Pass<T>& p) {
  kernel<<<static_cast<unsigned>(p.blocks), kThreads, 0, p.stream>>>(p.in, p.partials, p.out, p.counter, p.n);
}

const Version v8 = version<last_block_kernel<8, float>, last_block_kernel<8, Int>>({8, 8}, "reduction v8_last_block"),
              v8b = version<last_block_kernel<2, float>, last_block_kernel<2, Int>>({8, 2}, "reduction v8, two loads");

}  // namespace xgemm::lab::reduction
