#include "attention/decode/plan.h"

#include <algorithm>

#include "device/integer.h"

namespace xgemm::attention {

std::optional<DecodePlan> plan_decode(const SimtProblem& p, std::int64_t sk, std::int64_t shared_bytes) {
  if (p.fp64 || p.rows > kDecodeMostRows || sk == 0 || p.d == 0 || p.dv == 0) return {};
  DecodePlan plan;
  // The first that fits: they ascend in head size, then in rows. The last of a head size takes any number of rows.
  const auto fits = [&](const DecodeTile& t) {
    const bool most = &t == &kDecodeTiles.back() || (&t)[1].rows < t.rows;
    return std::max(p.d, p.dv) <= t.head_size && (most || p.rows <= t.rows);
  };
  const auto found = std::find_if(kDecodeTiles.begin(), kDecodeTiles.end(), fits);
  if (found == kDecodeTiles.end() || found->shared_bytes() > shared_bytes) return {};
  plan.tile = static_cast<int>(found - kDecodeTiles.begin());
  plan.row_tiles = ceil_div(p.rows, found->rows);
  plan.split_keys = decode_split_keys(sk);
  plan.first_split = static_cast<int>(p.key_begin / plan.split_keys);
  plan.splits = static_cast<int>(std::max<std::int64_t>(ceil_div(p.key_end, plan.split_keys) - plan.first_split, 1));
  plan.ctas = plan.row_tiles * p.batches * plan.splits;
  if (plan.splits > 1) plan.partial_bytes = p.rows * p.batches * plan.splits * 4 * (found->head_size + 2);
  return plan;
}

}  // namespace xgemm::attention
