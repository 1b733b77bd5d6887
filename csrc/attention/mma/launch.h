// The launch of the mma.sync kernels from the op's operands.
#pragma once
#include <cuda_runtime.h>

#include "attention/arguments.h"
#include "attention/mma/arguments.h"
#include "attention/mma/plan.h"

namespace xgemm::attention {

/// `memory` as in fill_arguments().
void launch_mma(const Plan& plan, const Arguments& arguments, void* memory, cudaStream_t stream);
/// The same of sequences: plan_sequences(); `sequences` with all their fields, and Arguments whose two batch dims are sequences
/// (or 1, if queries are packed) and key heads, and whose rows and keys are those of a batch of query and key (all of them if
/// packed; keys of a page). `memory`: plan.memory_bytes().
void launch_mma(const SequencePlan& plan, const Arguments& arguments, const Sequences& sequences, void* memory,
                cudaStream_t stream);

// The instantiations of kernel.cuh (`few` rows) and many_rows.cuh. `masked`: with a boolean or additive mask.
template <class Element>  // in <dtype>.cu
void launch_mma(bool few, int tile, bool masked, const MmaArguments& arguments, unsigned ctas, cudaStream_t stream);
template <class Element>  // in sequences_<dtype>.cu
void launch_mma_sequences(bool few, int tile, const WithSequences<MmaArguments>& arguments, unsigned ctas, cudaStream_t stream);

}  // namespace xgemm::attention
