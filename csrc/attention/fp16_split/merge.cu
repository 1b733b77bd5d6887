// The merge of splits (splits.cuh) for each unit of the scores.
#include "attention/fp16_split/instances.h"
#include "attention/fp16_split/splits.cuh"
#include "device/launch.h"

namespace xgemm::attention {

void launch_split_merge(bool natural_units, const SplitArguments& arguments, std::int64_t rows, cudaStream_t stream) {
  enqueue(natural_units ? merge_fp32_splits<Masking::additive> : merge_fp32_splits<Masking::edges>,
          merge_grid(rows, arguments.merge_slices), stream, arguments);
}

}  // namespace xgemm::attention
