// Thread coarsening (S1-15, S1-16) and the documents' "privatised" vector addition (S1-17): out = a + b. Floor: 12 n bytes.
//
// Coarsened as in the document, thread t adds elements f t .. f t + f - 1: fewer threads, but neighbouring lanes are f elements
// apart, so a request touches f times the sectors. With vector accesses the neighbours come in one instruction and the drawback
// is gone. The privatised version copies its operands to locals first, which the compiler does anyway: the same machine code
// (D8).
#include "device/vector.cuh"
#include "lab/experiments/experiments.h"

namespace xgemm::lab::experiments {
namespace {

constexpr int kThreads = 256;

__global__ void plain_kernel(const float* a, const float* b, float* out, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
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

}  // namespace

void vector_add(const float* a, const float* b, float* out, std::int64_t n, int factor, bool vector, bool privatised,
                cudaStream_t stream) {
  const unsigned blocks = blocks_for(n, kThreads * factor);
  const auto launch = [&](auto kernel) { kernel<<<blocks, kThreads, 0, stream>>>(a, b, out, n); };
  if (factor == 1)
    launch(privatised ? privatised_kernel : plain_kernel);
  else if (factor == 2)
    launch(vector ? coarsened_kernel<2, true> : coarsened_kernel<2, false>);
  else
    launch(vector ? coarsened_kernel<4, true> : coarsened_kernel<4, false>);
}

}  // namespace xgemm::lab::experiments
