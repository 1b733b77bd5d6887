// fp32, fp16 and bf16, many query rows: tiles of 64, of 16 for wide keys.
#include "attention/simt/launch.cuh"
#include "attention/simt/launch.h"

namespace xgemm::attention {

void launch_many_rows(const SimtPlan& plan, const SimtArguments& arguments, cudaStream_t stream) {
  switch (plan.tile) {
    case 0: return launch_tile<0>(plan, arguments, stream);
    case 1: return launch_tile<1>(plan, arguments, stream);
    case 2: return launch_tile<2>(plan, arguments, stream);
    case 3: return launch_tile<3>(plan, arguments, stream);
    default: return launch_tile<9>(plan, arguments, stream);
  }
}

}  // namespace xgemm::attention
