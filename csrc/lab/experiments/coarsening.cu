// Thread coarsening and the documents' "privatised" vector addition: out = a + b. Floor: 12 n bytes.
//
// Coarsened as in the document, thread t adds elements f t .. f t + f - 1: fewer threads, but neighbouring lanes are f elements
// apart, so a request touches f times the sectors. With vector accesses the neighbours come in one instruction and the drawback
// is gone. The privatised version copies its operands to locals first, which the compiler does anyway: the same machine
// code. unguarded is plain without the test i < n.
#include "device/vector.cuh"
#include "lab/experiments/experiments.h"

namespace xgemm::lab::experiments {

template <bool kGuarded>
__global__ void plain_kernel(const float* a, const float* b, float* out, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (!kGuarded || i < n) out[i] = a[i] + b[i];
}

__global__ void privatised_kernel(const float* a, const float* b, float* out, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) {
    const float mine_a = a[i];
    const float mine_b = b[i];
    out[i] = mine_a + mine_b;
  }
}

template <int kFactor, bool kVector>
__global__ void coarsened_kernel(const float* a, const float* b, float* out, std::int64_t n) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kFactor;
  if (kVector && i + kFactor <= n) {
    auto sum = load_vector<kFactor>(a + i);
    const auto other = load_vector<kFactor>(b + i);
#pragma unroll
    for (int k = 0; k < kFactor; ++k) sum[k] += other[k];
    store_vector(out + i, sum);
  } else {
#pragma unroll
    for (int k = 0; k < kFactor; ++k)
      if (i + k < n) out[i + k] = a[i + k] + b[i + k];
  }
}

const NameKernel named_additions[] = {{"vector_add plain", plain_kernel<true>, kThreads},
                                      {"vector_add unguarded", plain_kernel<false>, kThreads},
                                      {"vector_add privatised", privatised_kernel, kThreads},
                                      {"vector_add coarsened2", coarsened_kernel<2, false>, kThreads},
                                      {"vector_add coarsened4", coarsened_kernel<4, false>, kThreads},
                                      {"vector_add vector2", coarsened_kernel<2, true>, kThreads},
                                      {"vector_add vector4", coarsened_kernel<4, true>, kThreads}};

}  // namespace xgemm::lab::experiments
