// A plan of one family for one problem.
//
// Each plan_<family>(problem, gpu, forced) gives the family's best plan with a predicted time (`seconds`), or nothing if the
// family cannot do the problem: see its header. plan.h chooses among these candidates.
#pragma once
#include <variant>

#include "matmul/bf16x3/plan.h"
#include "matmul/fp64_mma/plan.h"
#include "matmul/gemv/plan.h"
#include "matmul/mma/plan.h"
#include "matmul/simt/plan.h"
#include "matmul/sliced/plan.h"
#include "matmul/tf32/plan.h"
#include "matmul/wgmma/plan.h"

namespace xgemm::matmul {

using Candidate = std::variant<SimtPlan, GemvPlan, Fp64Plan, MmaPlan, SlicedPlan, Tf32Plan, Bf16x3Plan, WgmmaPlan>;

inline double seconds(const Candidate& c) {
  return std::visit([](const auto& plan) { return plan.seconds; }, c);
}

}  // namespace xgemm::matmul
