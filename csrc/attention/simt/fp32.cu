// fp32, fp16 and bf16.
#include "attention/simt/tile.cuh"

namespace xgemm::attention {

void launch_fp32(const SimtPlan& plan, const SimtArguments& arguments, cudaStream_t stream) {
  launch_tile<false>(plan, arguments, stream);
}

}  // namespace xgemm::attention
