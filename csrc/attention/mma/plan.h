// The plans of the mma.sync kernels, if they take the problem. Pure host code.
#pragma once
#include "attention/mma/tile.h"
#include "attention/tiles/plan.h"

namespace xgemm::attention {

/// As plan_tiles() for few rows, with kMmaTiles and one CTA per item. Nothing for more than kMmaRows rows per key head, if
/// `shared_bytes` per CTA are too few, or in batch-invariant mode: keys are added in an order that many rows do not have.
std::optional<Plan> plan_few_rows(Problem problem, std::int64_t shared_bytes);
/// For any number of rows, with kManyRowsTiles and one CTA per item. Nothing if `shared_bytes` per CTA are too few.
std::optional<Plan> plan_many_rows(Problem problem, std::int64_t shared_bytes);
/// The same of sequence_problem().
std::optional<SequencePlan> plan_mma_sequences(const Problem& problem, const Sequences& sequences, std::int64_t shared_bytes);

}  // namespace xgemm::attention
