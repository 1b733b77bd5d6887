#include "matmul/mma/launch.cuh"

namespace xgemm::matmul {

void launch_mma_bf16(const Problem& p, const MmaPlan& plan, cudaStream_t stream) { launch_mma_type<bf16>(p, plan, stream); }

}  // namespace xgemm::matmul
