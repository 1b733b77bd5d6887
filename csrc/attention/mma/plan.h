// The plan of the mma.sync kernel, if it takes the problem. Pure host code.
#pragma once
#include "attention/mma/tile.h"
#include "attention/tiles/plan.h"

namespace xgemm::attention {

/// As plan_tiles() for few rows, with kMmaTiles and one CTA per item. Nothing for more than kMmaRows rows per key head, or if
/// `shared_bytes` per CTA are too few.
std::optional<Plan> plan_mma(Problem problem, std::int64_t shared_bytes);

}  // namespace xgemm::attention
