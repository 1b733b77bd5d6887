// The merge of splits (merge.cuh) for each dtype.
#include "attention/tiles/instances.h"
#include "attention/tiles/merge.cuh"
#include "device/integer.h"
#include "device/launch.h"

namespace xgemm::attention {

void launch_merge(DType dtype, const TileArguments& arguments, std::int64_t rows, cudaStream_t stream) {
  const auto launch = [&](auto kernel) {
    enqueue(kernel, {.blocks = static_cast<unsigned>(ceil_div(rows, kMergeWarps)), .threads = 32 * kMergeWarps, .early = true},
            stream, arguments);
  };
  launch(dtype == DType::f16 ? merge_splits<half> : merge_splits<bf16>);
}

}  // namespace xgemm::attention
