#include "matmul/mma/launch.cuh"

namespace xgemm::matmul {

void launch_mma_bf16(const Problem& p, const MmaPlan& plan, void* counters, float* partials, cudaStream_t stream) {
  launch_mma_type<bf16>(p, plan, counters, partials, stream);
}

}  // namespace xgemm::matmul
