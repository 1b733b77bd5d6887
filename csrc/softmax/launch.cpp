#include "reduce/launch.h"

#include "softmax/launch.h"

namespace xgemm::softmax {

void launch(const Plan& plan, const void* in, void* out, void* workspace, cudaStream_t stream) {
  switch (plan.kernel) {
    case Kernel::odd_rows: return launch_odd_rows(plan, in, out, stream);
    case Kernel::elements: return launch_elements(plan, in, out, stream);
    case Kernel::rows: return launch_rows(plan, in, out, stream);
    case Kernel::shared: return launch_shared(plan, in, out, stream);
    case Kernel::columns: return launch_columns(plan, in, out, stream);
    case Kernel::two_pass: break;
  }
  reduce::launch(*plan.statistics, in, workspace, static_cast<char*>(workspace) + plan.statistics_bytes, stream);
  launch_apply(plan, in, out, workspace, stream);
}

}  // namespace xgemm::softmax
