#include "attention/mma/launch.h"

#include "attention/tiles/instances.h"
#include "attention/tiles/problem.h"

namespace xgemm::attention {

void launch_mma(const Plan& plan, const Arguments& a, void* counters, void* memory, cudaStream_t stream) {
  MmaArguments g{};
  fill_arguments(g, plan, a, counters, memory, stream);
  const auto operand = [&](const Operand& x) {
    return MmaArguments::Operand{x.data, batch_stride(a, x, 1), batch_stride(a, x, 0), x.group, x.row};
  };
  g.queries = operand(a.query), g.keys = operand(a.key), g.values = operand(a.value);
  g.d = a.d;
  g.own_splits = plan.own_splits, g.alone = plan.alone;
  if (plan.masking != Masking::edges) g.mask_rows = own_row_masks(a, plan.packed), g.mask_vector = has_mask_vectors(a);
  const bool few = plan.table.data() == kMmaTiles.data();
  const auto launch =
      a.dtype == DType::f16 ? (few ? launch_mma_half : launch_many_rows_half) : (few ? launch_mma_bf16 : launch_many_rows_bf16);
  launch(plan.tile, plan.masking != Masking::edges, g, static_cast<unsigned>(plan.items()), stream);
  if (plan.through_memory) launch_merge(a.dtype, g, plan.merged_rows(), stream);
}

}  // namespace xgemm::attention
