// Problem -> one family's plan: asks every planner; the least predicted time wins. Pure host code, tested without a GPU.
#pragma once
#include <optional>
#include <string_view>

#include "matmul/bf16x3/plan.h"
#include "matmul/fp64_mma/plan.h"
#include "matmul/gemv/plan.h"
#include "matmul/mma/plan.h"
#include "matmul/simt/plan.h"
#include "matmul/tf32/plan.h"
#include "matmul/wgmma/plan.h"

namespace xgemm::matmul {

/// The planners' answers to one problem: at most one of `fp64`, `mma`, `small`, `tf32`, `bf16x3` and `tensor`, else CUDA cores.
struct Plans {
  std::optional<Fp64Plan> fp64;  ///< gated: of both products
  std::optional<MmaPlan> mma;
  std::optional<SmallPlan> small;
  std::optional<Tf32Plan> tf32;
  std::optional<Bf16x3Plan> bf16x3;
  std::optional<WgmmaPlan> tensor;
  SimtPlan simt;
  SimtPlan simt_up;  ///< gated: of the other product
};

/// `forced`: the name of a kernel or tile that is to do the problem where it can; empty: the fastest.
Plans make_plans(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

}  // namespace xgemm::matmul
