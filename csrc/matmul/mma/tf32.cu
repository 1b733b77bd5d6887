#include "matmul/mma/launch.cuh"

namespace xgemm::matmul {

void launch_mma_tf32(const Problem& p, const MmaPlan& plan, void* counters, float* partials, cudaStream_t stream) {
  launch_mma_type<float>(p, plan, counters, partials, stream);
}

}  // namespace xgemm::matmul
