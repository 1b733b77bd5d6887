// The merge of splits (merge.cuh) for each dtype.
#include "attention/tiles/instances.h"
#include "attention/tiles/merge.cuh"
#include "device/launch.h"

namespace xgemm::attention {
void launch_merge(DType dtype, const TileArguments& arguments, std::int64_t rows, cudaStream_t stream) {
  enqueue(dtype == DType::f16 ? merge_splits<half, Masking::edges> : merge_splits<bf16, Masking::edges>,
          merge_grid(rows, arguments.merge_slices), stream, arguments);
}

void launch_merge(DType dtype, const WithSequences<TileArguments>& arguments, std::int64_t rows, cudaStream_t stream) {
  enqueue(dtype == DType::f16 ? merge_splits<half, Masking::sequences> : merge_splits<bf16, Masking::sequences>,
          merge_grid(rows, arguments.merge_slices), stream, arguments);
}

}  // namespace xgemm::attention
