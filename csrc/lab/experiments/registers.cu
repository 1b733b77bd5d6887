// The register cliff: one kernel, blocks of 512 threads, bound to different numbers of registers a thread.
//
// All variants run the same loop, which needs few registers. A path that no launch takes keeps kLive values at once, so
// that the compiler allocates kRegisters for every thread: from 33 on, a fourth block no longer fits on the SM, from 41 on a
// third, from 65 on a second. memory: out = in, one load of 4 bytes in flight a thread. Else a chain of `iterations` dependent
// multiply-adds y <- y / 2 + 1 a thread. The grid is what the GPU holds at once and strides over the array. Floor: 8 n bytes, or
// 2 iterations n operations.
#include "lab/experiments/experiments.h"

namespace xgemm::lab::experiments {

constexpr int kRegisterThreads = 512;

template <int kRegisters, int kLive, bool kMemory>
__global__ void __launch_bounds__(kRegisterThreads) __maxnreg__(kRegisters)
    register_kernel(const float* in, float* out, std::int64_t n, int iterations, float b, float c) {
  if (iterations < 0) {  // never: it only needs registers
    float live[kLive];
#pragma unroll
    for (int k = 0; k < kLive; ++k) live[k] = in[k * kRegisterThreads + threadIdx.x];
    __syncthreads();  // all of them are loaded before any is used
#pragma unroll
    for (int k = 0; k < kLive; ++k) out[k * kRegisterThreads + (threadIdx.x ^ 1)] = live[k];
    return;
  }
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kRegisterThreads;
#pragma unroll 1  // one load in flight
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kRegisterThreads + threadIdx.x; i < n; i += step) {
    float y = in[i];
    if (!kMemory) {
#pragma unroll 16
      for (int k = 0; k < iterations; ++k) y = fmaf(y, b, c);
    }
    out[i] = y;
  }
}

/// The second number is what makes ptxas take exactly the first of registers without a spill.
const NameKernel named_registers[] = {{"registers 31 memory", register_kernel<31, 23, true>, kRegisterThreads},
                                      {"registers 31 arithmetic", register_kernel<31, 23, false>, kRegisterThreads},
                                      {"registers 33 memory", register_kernel<33, 26, true>, kRegisterThreads},
                                      {"registers 33 arithmetic", register_kernel<33, 26, false>, kRegisterThreads},
                                      {"registers 40 memory", register_kernel<40, 33, true>, kRegisterThreads},
                                      {"registers 40 arithmetic", register_kernel<40, 33, false>, kRegisterThreads},
                                      {"registers 41 memory", register_kernel<41, 34, true>, kRegisterThreads},
                                      {"registers 41 arithmetic", register_kernel<41, 34, false>, kRegisterThreads},
                                      {"registers 64 memory", register_kernel<64, 57, true>, kRegisterThreads},
                                      {"registers 64 arithmetic", register_kernel<64, 57, false>, kRegisterThreads},
                                      {"registers 65 memory", register_kernel<65, 58, true>, kRegisterThreads},
                                      {"registers 65 arithmetic", register_kernel<65, 58, false>, kRegisterThreads},
                                      {"registers 128 memory", register_kernel<128, 121, true>, kRegisterThreads},
                                      {"registers 128 arithmetic", register_kernel<128, 121, false>, kRegisterThreads}};

}  // namespace xgemm::lab::experiments
