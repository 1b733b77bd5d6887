// fp32, fp16 and bf16, few query rows (decoding): tiles of 8.
#include "attention/simt/launch.cuh"
#include "attention/simt/launch.h"

namespace xgemm::attention {

void launch_few_rows(const SimtPlan& plan, const SimtArguments& arguments, cudaStream_t stream) {
  plan.tile == 4 ? launch_tile<4>(plan, arguments, stream) : launch_tile<5>(plan, arguments, stream);
}

}  // namespace xgemm::attention
