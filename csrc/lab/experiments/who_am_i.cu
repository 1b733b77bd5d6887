// Warps and blocks as the hardware forms and places them.
//
// Each thread writes five numbers: its lane; the linear number of its warp's first thread, by a shuffle from lane 0; its SM; when
// it began and when it ended, in nanoseconds of the GPU's clock. Threads of a block are numbered x + y Dx + z Dx Dy, and 32
// consecutive numbers are a warp. Every thread stays for `nanoseconds`, so that blocks that do not fit at once begin later. The
// block's shape is any of up to 1024 threads; floor: none, it measures time.
#include "lab/experiments/experiments.h"

namespace xgemm::lab::experiments {

__device__ __forceinline__ unsigned lane_of_hardware() {
  unsigned x;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(x));
  return x;
}
__device__ __forceinline__ unsigned multiprocessor() {
  unsigned x;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(x));
  return x;
}
__device__ __forceinline__ std::int64_t now() {
  std::int64_t x;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(x));
  return x;
}

__global__ void who_kernel(std::int64_t* out, std::int64_t nanoseconds) {
  const std::int64_t begin = now();
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned first = __shfl_sync(__activemask(), thread, 0);
  while (now() - begin < nanoseconds) {
  }
  std::int64_t* mine = out + 5 * (static_cast<std::int64_t>(blockIdx.x) * blockDim.x * blockDim.y * blockDim.z + thread);
  mine[0] = lane_of_hardware(), mine[1] = first, mine[2] = multiprocessor(), mine[3] = begin, mine[4] = now();
}

const NameKernel named_who("who am i", who_kernel, 1024);

}  // namespace xgemm::lab::experiments
