#include "matmul/mma/large_launch.cuh"

namespace xgemm::matmul {

void launch_large_half(const Problem& p, const LargePlan& plan, const LargeArguments& g, cudaStream_t stream) {
  launch_large_type<half>(p, plan, g, stream);
}

}  // namespace xgemm::matmul
