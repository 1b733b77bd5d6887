#include "softmax/launch.h"

namespace xgemm::softmax {

void launch(const Plan& plan, const void* in, void* out, const void* pairs, cudaStream_t stream) {
  switch (plan.kernel) {
    case Kernel::elements: return launch_elements(plan, in, out, stream);
    case Kernel::rows: return launch_rows(plan, in, out, stream);
    case Kernel::shared: return launch_shared(plan, in, out, stream);
    case Kernel::columns: return launch_columns(plan, in, out, stream);
    case Kernel::two_pass: return launch_apply(plan, in, out, pairs, stream);
  }
}

}  // namespace xgemm::softmax
