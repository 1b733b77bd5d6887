// Control divergence.
//
// parity: even -> 2 x, odd -> x + 1, once with if/else on the data and once with arithmetic. The compiler
// predicates so short a branch, so neither version diverges: a negative control. Floor: 8 n bytes; the documents timed
// one first launch of each. paths: `count` ways of kSteps dependent FMAs each. Chosen by lane, a warp must run all of
// them, one after the other, with the other lanes idle: count times the time. Chosen by warp, it runs one.
#include "lab/experiments/experiments.h"

namespace xgemm::lab::experiments {

constexpr int kSteps = 256;

__global__ void branch_kernel(const int* in, int* out, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const unsigned x = in[i];  // unsigned: doubling may wrap
  if (x % 2 == 0)
    out[i] = static_cast<int>(x * 2);
  else
    out[i] = static_cast<int>(x + 1);
}

__global__ void arithmetic_kernel(const int* in, int* out, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const unsigned x = in[i], even = x % 2 == 0;
  out[i] = static_cast<int>(even * (x * 2) + !even * (x + 1));
}

__global__ void paths_kernel(const float* in, float* out, std::int64_t n, int count, bool per_lane) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int mine = static_cast<int>((per_lane ? i : i / 32) % count);
  float x = i < n ? in[i] : 0;
  for (int path = 0; path < count; ++path) {
    if (path != mine) continue;
    const float b = static_cast<float>(path);
    for (int step = 0; step < kSteps; ++step) x = fmaf(x, 0.5f, b);
  }
  if (i < n) out[i] = x;
}

const NameKernel named_paths[] = {{"parity branch", branch_kernel, kThreads},
                                  {"parity arithmetic", arithmetic_kernel, kThreads},
                                  {"paths", paths_kernel, kThreads}};

}  // namespace xgemm::lab::experiments
