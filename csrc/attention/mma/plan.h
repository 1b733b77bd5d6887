// The plan of the mma.sync kernel, if it takes the problem. Pure host code.
#pragma once
#include "attention/mma/tile.h"
#include "attention/wgmma/plan.h"

namespace xgemm::attention {

/// As plan_wgmma() for few rows, with kMmaTiles and one CTA per item. Nothing for more than kMmaRows rows per key head, or if
/// `shared_bytes` per CTA are too few.
std::optional<WgmmaPlan> plan_mma(WgmmaProblem problem, std::int64_t shared_bytes);

}  // namespace xgemm::attention
