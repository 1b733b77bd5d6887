// Latency of the memory hierarchy: from `start`, one thread follows i <- next[i], so that each load waits for the one
// before.
//
// The caller's `next` is a cycle through an array; its size decides which memory answers. The thread first walks `kWarmUp` steps,
// or the whole cycle where that is shorter, so that an array that fits in L1 is there; then it takes the time of `steps` steps
// with the SM's clock. shared: the array is copied to shared memory first. out: the element where the walk ends (what the caller
// checks), and the cycles that it took. A step is a load and the multiply-add of its address.
#include "lab/experiments/experiments.h"

namespace xgemm::lab::experiments {

constexpr int kWarmUp = 4096;

template <bool kShared>
__global__ void chase_kernel(const int* next, int n, std::int64_t* out, int steps, int start) {
  extern __shared__ int staged[];
  if (kShared)
    for (int i = 0; i < n; ++i) staged[i] = next[i];
  const int* from = kShared ? staged : next;
  int i = start;
  for (int step = 0; step < kWarmUp; ++step) i = from[i];
  const long long begin = clock64();
#pragma unroll 8
  for (int step = 0; step < steps; ++step) i = from[i];
  out[0] = i;  // before the clock is read again: the store needs the last load
  const long long end = clock64();
  out[1] = end - begin;
}

const NameKernel named_chases[] = {{"pointer_chase", chase_kernel<false>, 1},
                                   {"pointer_chase shared", chase_kernel<true>, 1, 48 * 1024}};

}  // namespace xgemm::lab::experiments
