// Sequences of different lengths, of every dtype: one tile for each of a few kinds of problem. Correct, not as fast as can be.
#include <algorithm>

#include "attention/simt/launch.cuh"
#include "attention/simt/launch.h"
#include "device/integer.h"

namespace xgemm::attention {
namespace {

constexpr int kManyRows = 2, kFewRows = 4, kLargeHeads = 5, kFp64 = 8;  // of kSimtTiles

}  // namespace

SimtSequencePlan plan_simt_sequences(const Arguments& a, const Sequences& s) {
  SimtSequencePlan plan;
  const std::int64_t rows = std::int64_t{s.max_q} * a.group;
  plan.tiles.tile = a.dtype == DType::f64 ? kFp64 : std::max(a.d, a.dv) > 128 ? kLargeHeads : rows > 24 ? kManyRows : kFewRows;
  const SimtTile& tile = kSimtTiles[static_cast<std::size_t>(plan.tiles.tile)];
  plan.tiles.row_tiles = ceil_div(rows, tile.rows());
  plan.tiles.splits = static_cast<int>(std::max<std::int64_t>(ceil_div(s.max_k, kSplitKeys), 1));
  plan.tiles.blocks = plan.tiles.row_tiles * s.count * a.batch_sizes[1];
  plan.tiles.partials = plan.tiles.splits > 1;
  plan.memory_bytes = plan.tiles.partials * a.total_rows() * (tile.head_size + 2) * tile.element_bytes();
  return plan;
}

void launch_simt(const SimtSequencePlan& plan, const Arguments& arguments, const Sequences& sequences, void* memory,
                 cudaStream_t stream) {
  const SimtTile& tile = kSimtTiles[static_cast<std::size_t>(plan.tiles.tile)];
  SimtSequenceArguments a{arguments, sequences, {arguments.key.batch[0], arguments.value.batch[0]}};
  a.key.batch[0] = a.value.batch[0] = 0;
  a.row_tiles = static_cast<std::uint32_t>(plan.tiles.row_tiles), a.splits = plan.tiles.splits;
  if (memory != nullptr) {
    const std::int64_t rows = arguments.total_rows();
    char* const base = static_cast<char*>(memory);
    a.partial_output = base, a.partial_max = base + rows * tile.head_size * tile.element_bytes();
    a.partial_sum = base + rows * (tile.head_size + 1) * tile.element_bytes();
  }
  switch (plan.tiles.tile) {
    case kManyRows: return launch_tile<kManyRows, true>(plan.tiles, a, stream);
    case kFewRows: return launch_tile<kFewRows, true>(plan.tiles, a, stream);
    case kLargeHeads: return launch_tile<kLargeHeads, true>(plan.tiles, a, stream);
    default: return launch_tile<kFp64, true>(plan.tiles, a, stream);
  }
}

}  // namespace xgemm::attention
