// fp64, many and few query rows.
#include "attention/simt/launch.cuh"
#include "attention/simt/launch.h"

namespace xgemm::attention {

void launch_fp64(const SimtPlan& plan, const SimtArguments& arguments, cudaStream_t stream) {
  switch (plan.tile) {
    case 6: return launch_tile<6>(plan, arguments, stream);
    case 7: return launch_tile<7>(plan, arguments, stream);
    case 8: return launch_tile<8>(plan, arguments, stream);
    default: return launch_tile<10>(plan, arguments, stream);
  }
}

}  // namespace xgemm::attention
