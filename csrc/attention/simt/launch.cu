// The launch of a plan: a tile kernel, then the merge of partial results.
#include "attention/simt/launch.h"
#include "attention/simt/merge.cuh"

namespace xgemm::attention {
namespace {

void launch_merge(const SimtTile& tile, const Arguments& arguments, cudaStream_t stream) {
  constexpr std::int64_t kRows = kThreads / kWarpSize;
  const auto blocks = static_cast<unsigned>((arguments.total_rows() + kRows - 1) / kRows);
  const auto kernel = tile.fp64 ? attention_merge<double> : attention_merge<float>;
  kernel<<<blocks, kThreads, 0, stream>>>(arguments, tile.head_size);
}

}  // namespace

void launch_simt(const SimtPlan& plan, const Arguments& arguments, cudaStream_t stream) {
  const SimtTile& tile = kSimtTiles[static_cast<std::size_t>(plan.tile)];
  const auto launch_tiles = tile.fp64 ? launch_fp64 : tile.thread_rows == 1 ? launch_few_rows : launch_many_rows;
  launch_tiles(plan, arguments, stream);
  if (plan.parallel) launch_merge(tile, arguments, stream);
}

}  // namespace xgemm::attention
