#include "matmul/mma/large_launch.cuh"

namespace xgemm::matmul {

void launch_large_fp16x3(const Problem& p, const LargePlan& plan, const LargeArguments& g, cudaStream_t stream) {
  launch_large_type<half, 2>(p, plan, g, stream);
}

}  // namespace xgemm::matmul
