// Latency hiding in memory by instruction-level parallelism: a copy with kLoads loads of kWidth floats in flight
// a thread before the first store.
//
// The grid is full, a thread for each group of elements as on the slides; or as many blocks as the GPU holds at once, or one an
// SM, walk over the array. threads x loads x width x 4 bytes of each block are in flight, against the latency x bandwidth that
// memory needs. A full grid of small blocks shows something else: starting one takes an H200 0.6 ns. Floor: 8 n bytes.
#include "device/vector.cuh"
#include "lab/experiments/experiments.h"

namespace xgemm::lab::experiments {

template <int kLoads, int kWidth>
__global__ void copy_kernel(const float* in, float* out, std::int64_t vectors) {
  using V = Vector<float, kWidth>;
  const V* from = reinterpret_cast<const V*>(in);
  V* to = reinterpret_cast<V*>(out);
  const std::int64_t tile = std::int64_t{kLoads} * blockDim.x;
  for (std::int64_t base = blockIdx.x * tile; base < vectors; base += gridDim.x * tile) {
    V x[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const std::int64_t i = base + k * blockDim.x + threadIdx.x;
      if (i < vectors) x[k] = from[i];
    }
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const std::int64_t i = base + k * blockDim.x + threadIdx.x;
      if (i < vectors) to[i] = x[k];
    }
  }
}

const NameKernel named_copies[] = {{"copy 1x1", copy_kernel<1, 1>, 1024}, {"copy 2x1", copy_kernel<2, 1>, 1024},
                                   {"copy 4x1", copy_kernel<4, 1>, 1024}, {"copy 8x1", copy_kernel<8, 1>, 1024},
                                   {"copy 1x2", copy_kernel<1, 2>, 1024}, {"copy 1x4", copy_kernel<1, 4>, 1024}};

}  // namespace xgemm::lab::experiments
