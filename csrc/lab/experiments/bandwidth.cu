// What each level of the memory hierarchy delivers (after Volkov): threads read 16 bytes at a time and add what they read.
//
// global         the grid walks over the whole array, `repeats` times and past L1: L2 answers where the array fits there, else
//                memory. Four loads in flight a thread.
// l1, shared     each block reads its own 16 KiB again and again, from L1 or after a copy to shared memory; lanes read
//                consecutive 16 bytes, without bank conflicts. Four additions a load: a quarter of what an SM adds meanwhile.
// out[t] is the sum of what thread t has read: what the caller checks. Floor: 4 n repeats bytes at the level's rate; shared
// memory and L1 deliver 128 bytes a cycle and SM.
#include "device/vector.cuh"
#include "lab/experiments/experiments.h"

namespace xgemm::lab::experiments {

constexpr int kReadLoads = 4, kReadWidth = 4;

__device__ __forceinline__ void add(Vector<float, kReadWidth>& sum, const Vector<float, kReadWidth>& x) {
#pragma unroll
  for (int j = 0; j < kReadWidth; ++j) sum[j] += x[j];
}

__device__ __forceinline__ void finish(float* out, const Vector<float, kReadWidth>& sum) {
  out[blockIdx.x * kThreads + threadIdx.x] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

__global__ void __launch_bounds__(kThreads) global_kernel(const float* in, float* out, std::int64_t vectors, int repeats) {
  constexpr std::int64_t kTile = kReadLoads * kThreads;
  Vector<float, kReadWidth> sum = {};
  for (int repeat = 0; repeat < repeats; ++repeat)
    for (std::int64_t base = blockIdx.x * kTile + threadIdx.x; base < vectors; base += gridDim.x * kTile) {
      Vector<float, kReadWidth> x[kReadLoads] = {};
#pragma unroll
      for (int k = 0; k < kReadLoads; ++k)
        if (base + k * kThreads < vectors) x[k] = stream_vector(in + kReadWidth * (base + k * kThreads));
#pragma unroll
      for (int k = 0; k < kReadLoads; ++k) add(sum, x[k]);
    }
  finish(out, sum);
}

/// `step` is kReadWidth * kThreads, known at run time only: else the compiler would keep the chunk in registers.
template <bool kShared>
__global__ void __launch_bounds__(kThreads) chunk_kernel(const float* in, float* out, int repeats, unsigned step) {
  const float* from = in + std::int64_t{kReadChunk} * blockIdx.x;
  if constexpr (kShared) {
    __shared__ alignas(16) float staged[kReadChunk];
    for (int i = threadIdx.x; i < kReadChunk; i += kThreads) staged[i] = from[i];
    __syncthreads();
    from = staged;
  }
  Vector<float, kReadWidth> sum = {};
  unsigned at = kReadWidth * threadIdx.x;
#pragma unroll 8
  for (int i = 0; i < repeats * (kReadChunk / (kReadWidth * kThreads)); ++i) {
    add(sum, load_vector<kReadWidth>(from + at));
    at = (at + step) % kReadChunk;
  }
  finish(out, sum);
}

const NameKernel named_global("read global", global_kernel, kThreads), named_l1("read l1", chunk_kernel<false>, kThreads),
    named_shared("read shared", chunk_kernel<true>, kThreads);

}  // namespace xgemm::lab::experiments
