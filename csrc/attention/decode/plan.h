// Whether the decoding kernel takes a problem, and how: pure host code.
#pragma once
#include <optional>

#include "attention/decode/tile.h"
#include "attention/simt/plan.h"

namespace xgemm::attention {

struct DecodePlan {
  int tile = 0;  ///< index into kDecodeTiles
  std::int64_t row_tiles = 0;
  int split_keys = 0;
  int first_split = 0;  ///< that of the first key that some row sees
  int splits = 1;       ///< from that one on
  std::int64_t ctas = 0;
  std::int64_t partial_bytes = 0;  ///< of partial results in memory: none for one split

  const DecodeTile& info() const { return kDecodeTiles[static_cast<std::size_t>(tile)]; }
};

/// Nothing for fp64, for more than kDecodeMostRows rows, where there is no key, no head dim or no value column, or where a CTA
/// does not have enough shared memory: `shared_bytes` of it. `sk`: all keys, seen or not.
std::optional<DecodePlan> plan_decode(const Problem& problem, std::int64_t sk, std::int64_t shared_bytes);

}  // namespace xgemm::attention
