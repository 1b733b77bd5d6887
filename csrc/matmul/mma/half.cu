#include "matmul/mma/launch.cuh"

namespace xgemm::matmul {

void launch_mma_half(const Problem& p, const MmaPlan& plan, cudaStream_t stream) { launch_mma_type<half>(p, plan, stream); }

}  // namespace xgemm::matmul
