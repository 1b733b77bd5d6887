// Whether the mma.sync kernel takes a problem, and how: pure host code.
#pragma once
#include "attention/mma/tile.h"
#include "attention/wgmma/plan.h"

namespace xgemm::attention {

/// As plan_wgmma() plans few rows, of kMmaTiles, a CTA an item. Nothing for more than kMmaRows rows a key head, or where a CTA
/// does not have enough shared memory: `shared_bytes` of it.
std::optional<WgmmaPlan> plan_mma(WgmmaProblem problem, std::int64_t shared_bytes);

}  // namespace xgemm::attention
