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

void launch_tiles(const SimtPlan& plan, const SimtArguments& arguments, cudaStream_t stream) {
  const SimtTile& tile = kSimtTiles[static_cast<std::size_t>(plan.tile)];
  (tile.fp64 ? launch_fp64 : tile.thread_rows == 1 ? launch_few_rows : launch_many_rows)(plan, arguments, stream);
}

}  // namespace

void launch_simt(const SimtPlan& plan, const Arguments& arguments, cudaStream_t stream) {
  launch_tiles(plan, {arguments}, stream);
  if (plan.parallel) launch_merge(kSimtTiles[static_cast<std::size_t>(plan.tile)], arguments, stream);
}

SimtSequencePlan plan_simt_sequences(const Arguments& a, const Sequences& s) {
  const std::int64_t rows = std::int64_t{s.max_q} * a.group, key_heads = a.batch_sizes[1];
  SimtSequencePlan plan;
  plan.tiles = plan_simt(
      {.fp64 = a.dtype == DType::f64, .batches = s.count * key_heads, .rows = rows, .key_end = s.max_k, .d = a.d, .dv = a.dv});
  const SimtTile& tile = kSimtTiles[static_cast<std::size_t>(plan.tiles.tile)];
  plan.memory_bytes = plan.tiles.partials * a.total_rows() * (tile.head_size + 2) * tile.element_bytes();
  return plan;
}

void launch_simt(const SimtSequencePlan& plan, const Arguments& arguments, const Sequences& sequences, void* memory,
                 cudaStream_t stream) {
  const SimtTile& tile = kSimtTiles[static_cast<std::size_t>(plan.tiles.tile)];
  SimtArguments a{arguments, sequences, {arguments.key.batch[0], arguments.value.batch[0]}};
  a.key.batch[0] = a.value.batch[0] = 0;
  a.row_tiles = static_cast<std::uint32_t>(plan.tiles.row_tiles), a.splits = plan.tiles.splits;
  if (memory != nullptr) {
    const std::int64_t rows = arguments.total_rows();
    char* const base = static_cast<char*>(memory);
    a.partial_output = base, a.partial_max = base + rows * tile.head_size * tile.element_bytes();
    a.partial_sum = base + rows * (tile.head_size + 1) * tile.element_bytes();
  }
  launch_tiles(plan.tiles, a, stream);
}

}  // namespace xgemm::attention
