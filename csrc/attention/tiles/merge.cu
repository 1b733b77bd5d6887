// The merge of splits (merge.cuh) for each dtype.
#include "attention/tiles/instances.h"
#include "attention/tiles/merge.cuh"
#include "device/launch.h"

namespace xgemm::attention {
namespace {

void launch(auto kernel, const auto& arguments, std::int64_t rows, cudaStream_t stream) {
  enqueue(kernel, merge_grid(rows, arguments.merge_slices), stream, arguments);
}

}  // namespace

void launch_merge(DType dtype, const TileArguments& arguments, std::int64_t rows, cudaStream_t stream) {
  launch(dtype == DType::f16 ? merge_splits<half, Masking::edges> : merge_splits<bf16, Masking::edges>, arguments, rows, stream);
}

void launch_merge(DType dtype, const WithSequences<TileArguments>& arguments, std::int64_t rows, cudaStream_t stream) {
  launch(dtype == DType::f16 ? merge_splits<half, Masking::sequences> : merge_splits<bf16, Masking::sequences>, arguments, rows,
         stream);
}

}  // namespace xgemm::attention
