#include "topk_softmax/launch.h"

namespace xgemm::topk_softmax {

void launch(const Plan& plan, const void* in, void* values, std::int64_t* indices, cudaStream_t stream) {
  return (plan.kernel == Kernel::rounds ? launch_rounds : launch_select)(plan, in, values, indices, stream);
}

}  // namespace xgemm::topk_softmax
