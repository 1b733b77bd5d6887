// The merge of splits (merge.cuh) for each dtype and unit of the scores.
#include "attention/wgmma/instances.h"
#include "attention/wgmma/merge.cuh"
#include "device/integer.h"
#include "device/launch.h"

namespace xgemm::attention {

void launch_merge(DType dtype, bool natural_units, const WgmmaArguments& arguments, std::int64_t rows, cudaStream_t stream) {
  const auto launch = [&](auto kernel) {
    enqueue(kernel, {.blocks = static_cast<unsigned>(ceil_div(rows, kMergeWarps)), .threads = 32 * kMergeWarps, .early = true},
            stream, arguments);
  };
  if (dtype == DType::f16)
    launch(natural_units ? merge_splits<half, Masking::additive> : merge_splits<half, Masking::edges>);
  else
    launch(natural_units ? merge_splits<bf16, Masking::additive> : merge_splits<bf16, Masking::edges>);
}

}  // namespace xgemm::attention
