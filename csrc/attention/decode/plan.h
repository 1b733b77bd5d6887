// The plan of the decoding kernel, if it takes the problem. Pure host code.
#pragma once
#include <optional>

#include "attention/decode/tile.h"
#include "attention/simt/plan.h"

namespace xgemm::attention {

struct DecodePlan {
  int tile = 0;  ///< index into kDecodeTiles
  std::int64_t row_tiles = 0;
  int split_keys = 0;
  int first_split = 0;  ///< the split of the first key that some row sees
  int splits = 1;       ///< from that one on
  std::int64_t ctas = 0;
  std::int64_t partial_bytes = 0;  ///< of partial results in memory: 0 for one split

  const DecodeTile& info() const { return kDecodeTiles[static_cast<std::size_t>(tile)]; }
};

/// Nothing for fp64, for more than kDecodeMostRows rows, without keys, head dims or value columns, or if `shared_bytes` per CTA
/// are too few. `sk`: all keys, seen or not.
std::optional<DecodePlan> plan_decode(const SimtProblem& problem, std::int64_t sk, std::int64_t shared_bytes);

}  // namespace xgemm::attention
