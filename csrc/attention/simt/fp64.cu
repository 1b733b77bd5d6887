// fp64.
#include "attention/simt/tile.cuh"

namespace xgemm::attention {

void launch_fp64(const SimtPlan& plan, const SimtArguments& arguments, cudaStream_t stream) {
  launch_tile<true>(plan, arguments, stream);
}

}  // namespace xgemm::attention
