#include "matmul/mma/large_launch.cuh"

namespace xgemm::matmul {

void launch_large_bf16(const Problem& p, const LargePlan& plan, const LargeArguments& g, cudaStream_t stream) {
  launch_large_type<bf16>(p, plan, g, stream);
}

}  // namespace xgemm::matmul
