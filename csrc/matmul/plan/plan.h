// Problem -> matmul's plan: the candidate of least predicted time among all families. Pure host code, tested without a GPU.
//
// offer_<family>(question) gives the family's best plan with a predicted time (`seconds`), or nothing if the family cannot do the
// problem (legality.cpp). Times: roofline.h, by the costs in tiles.h and the rates in machine.h.
#pragma once
#include <optional>
#include <string_view>
#include <variant>

#include "matmul/bf16x3/plan.h"
#include "matmul/fp64_mma/plan.h"
#include "matmul/gemv/plan.h"
#include "matmul/mma/plan.h"
#include "matmul/plan/roofline.h"
#include "matmul/simt/plan.h"
#include "matmul/sliced/plan.h"
#include "matmul/tf32/plan.h"
#include "matmul/wgmma/plan.h"

namespace xgemm::matmul {

using Candidate = std::variant<SimtPlan, GemvPlan, Fp64Plan, MmaPlan, LargePlan, SlicedPlan, Tf32Plan, Bf16x3Plan, WgmmaPlan>;

inline double seconds(const Candidate& c) {
  return std::visit([](const auto& plan) { return plan.seconds; }, c);
}

struct Plan {
  Candidate kernel;             ///< computes the problem; of a gated one with `up`, its second product (gate_product)
  std::optional<Candidate> up;  ///< gated, as two products: the first (up_product)
  bool slower_than_torch{};     ///< expected: for callers that can leave the problem to torch
};

/// `forced`: a name that is_plan_name knows: the fastest of its family's kernels if it can do the problem, else CUDA cores.
/// Empty: the fastest of all. Of a batch-invariant problem the order of additions depends on N, K and dtype alone.
Plan make_plan(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

// `forced`: as in make_plan; of wgmma, a tile that cannot do the problem leaves the choice free.
std::optional<Fp64Plan> offer_fp64(const Question& q);
std::optional<MmaPlan> offer_mma(const Question& q);
std::optional<LargePlan> offer_large(const Question& q);
std::optional<SlicedPlan> offer_sliced(const Question& q);
std::optional<Tf32Plan> offer_tf32(const Question& q);
std::optional<Bf16x3Plan> offer_bf16x3(const Question& q);
std::optional<WgmmaPlan> offer_wgmma(const Question& q);
/// gemv, dot or tiles on CUDA cores, which can do every problem of fp32 and fp64.
std::optional<Candidate> offer_cuda_cores(const Question& q);
std::optional<GemvPlan> offer_outputs(const Question& q);
/// The product on CUDA cores, for the elements that fp16 parts cannot represent: its launch must be short if there are none.
SimtPlan simt_fallback(Problem p, const DeviceProperties& gpu);

/// Whole tiles, for elements that fp16 parts cannot represent (bf16x3_list_words of numbers); nothing if CUDA cores compute them.
std::optional<Bf16x3Plan> plan_bf16x3_fallback(const Question& q);

}  // namespace xgemm::matmul
