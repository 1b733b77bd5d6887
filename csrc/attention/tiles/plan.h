// The plan of the tensor-core kernel, if it takes the problem. Pure host code.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "attention/tiles/sequence_tiles.h"
#include "attention/tiles/tile.h"
#include "device/integer.h"

namespace xgemm::attention {

/// What the choice depends on.
struct Problem {
  std::span<const Tile> table{};  ///< the family's
  bool possible = false;          ///< half precision, operands that TMA or cp.async can load (problem.cpp), scale > 0
  bool causal = false;
  std::int64_t batches = 0;  ///< key heads of all batches
  std::int64_t group = 1;    ///< query heads per key head
  std::int64_t sq = 0, sk = 0;
  std::int64_t key_begin = 0, key_end = 0;  ///< keys that some row sees, apart from the mask
  std::int64_t d = 0, dv = 0;
  int sm_count = 0;
  Masking masking = Masking::edges;
  std::int64_t mask_batches = 1;               ///< with masks of their own
  bool mask_heads = false, mask_rows = false;  ///< the mask differs among a key head's query heads, among positions
  bool batch_invariant = false;                ///< the order of additions must not depend on the number of rows
  bool portable = false;                       ///< mma.sync: each tile serves any number of rows, and rows are stored without TMA
  bool latent = false;                         ///< values are the keys' first columns
  std::int64_t most_split_tiles = std::numeric_limits<std::int32_t>::max();  ///< of keys
};

struct Plan {
  std::span<const Tile> table{};
  int tile = 0;            ///< index into `table`
  int packed = 1;          ///< query heads of a group whose rows share a tile: 1 or all
  int tile_rows = 0;       ///< used rows of a tile: all, unless the group does not divide them
  int row_tiles = 0;       ///< of a tile head, which is `packed` query heads
  int section_heads = 1;   ///< tile heads whose keys and values stay in L2 together
  std::int64_t tiles = 0;  ///< of rows, in all
  int splits = 1;          ///< of the keys, those with keys that some row sees
  int first_split = 0;
  bool alone = false;           ///< mma/: one CTA per SM at a time
  int split_tiles = 0;          ///< tiles of keys of a split
  bool through_memory = false;  ///< several splits, or rows that TMA, if it is used, cannot store
  int partial_rows = 0;         ///< rows of a tile's partial results
  int ctas = 0;
  Masking masking = Masking::edges;
  std::int64_t mask_tiles = 0;  ///< tiles of rows with masks of their own
  int key_tiles = 0;            ///< tiles of keys of each, of all keys

  std::int64_t items() const { return tiles * splits; }
  const Tile& info() const { return table[static_cast<std::size_t>(tile)]; }
  bool shares_items() const { return items() > ctas; }  ///< CTAs take items from one counter
  std::int64_t counter_bytes() const { return 4 * shares_items(); }
  std::int64_t merged_rows() const { return tiles * partial_rows; }  ///< rows of partial results
  std::int64_t state_bytes() const { return through_memory ? round_up(8 * items() * partial_rows, 16) : 0; }
  std::int64_t partial_bytes() const {
    return state_bytes() + (through_memory ? 4 * items() * partial_rows * info().value_size : 0);
  }
  std::int64_t mask_bit_bytes() const { return masking == Masking::boolean ? 16 * mask_tiles * key_tiles * info().rows() : 0; }
  /// Workspace: partial results, then the mask's bits and classes.
  std::int64_t memory_bytes() const { return partial_bytes() + mask_bit_bytes() + mask_tiles * key_tiles; }
};

/// Warps that merge one of so many rows: one, or all of a CTA (merge.cuh) where few rows have much to add.
constexpr int merge_slices(std::int64_t rows, std::int64_t splits, std::int64_t columns) {
  return splits * columns > 8 * 128 && rows <= 1024 ? kMergeWarps : 1;
}

/// Nothing if the kernel does not take the problem.
std::optional<Plan> plan_tiles(const Problem& problem);

/// The plan of sequences. `tiles` has an item for each entry of SequenceSchedule and tile head.
struct SequencePlan {
  Plan tiles;
  SequenceSchedule schedule = {};  ///< without its list
  bool listed = false;
  std::int64_t mean_splits = 1;   ///< of a sequence
  std::int64_t merged_tiles = 0;  ///< without a list: tiles of rows, one of each sequence and tile head

  std::int64_t list_bytes() const {
    return listed ? (schedule.entries + std::int64_t{1}) * static_cast<std::int64_t>(sizeof(SequenceItem)) : 0;
  }
  std::int64_t memory_bytes() const { return tiles.memory_bytes() + list_bytes(); }
  std::int64_t merged_rows() const { return listed ? tiles.merged_rows() : merged_tiles * tiles.partial_rows; }
};

/// What takes the items: a CTA each, with splits of the keys in memory where rows are few; or persistent CTAs, without splits.
enum class SequenceKernel { few_rows, many_rows, persistent };

/// tile_problem() of sequences' Arguments becomes that of as many batches of max_q queries and max_k keys.
Problem sequence_problem(Problem problem, const Sequences& sequences);
/// From the plan for that problem.
std::optional<SequencePlan> plan_sequences(const Problem& problem, const Sequences& sequences, const Plan& tiles,
                                           SequenceKernel kernel);

}  // namespace xgemm::attention
