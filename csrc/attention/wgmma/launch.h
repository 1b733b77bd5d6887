// The launch of the wgmma kernel from the op's operands.
#pragma once
#include <cuda_runtime.h>

#include "attention/tiles/problem.h"

namespace xgemm::attention {

/// The plan's masking, or additive_tma if TMA can load the mask.
Masking launched_masking(const Plan& plan, const Arguments& arguments);

/// `counters`: plan.counter_bytes() of zeros, zeros again afterwards; `memory` as in fill_arguments(). False if the driver makes
/// no tensor maps: nothing was launched.
bool launch_wgmma(const Plan& plan, const Arguments& arguments, void* counters, void* memory, cudaStream_t stream);

/// The same of sequences, with Arguments as in mma/launch.h; nothing if keys lie in pages of a table.
std::optional<SequencePlan> plan_wgmma_sequences(Problem problem, const Sequences& sequences);
bool launch_wgmma(const SequencePlan& plan, const Arguments& arguments, const Sequences& sequences, void* counters, void* memory,
                  cudaStream_t stream);
/// The same for wide.cu; `plan` as plan_wide() made it.
bool launch_wide(const Plan& plan, const Arguments& arguments, void* memory, cudaStream_t stream);
/// Of sequences, whose keys may lie in pages of any size. `latent`: values are the keys' first columns.
std::optional<SequencePlan> plan_wide_sequences(const Problem& problem, const Sequences& sequences, bool latent);
bool launch_wide(const SequencePlan& plan, const Arguments& arguments, const Sequences& sequences, void* memory,
                 cudaStream_t stream);
/// More query heads of a key head than a tile of wide.cu has rows become several groups, along batch dim `dim`: a new last one,
/// or one of size 1.
void divide_group(Arguments& arguments, int dim);

// The instantiations of kernel.cuh, in a source file each so that they compile in parallel.
template <class Element>  // in <dtype>.cu
void launch_wgmma(int tile, Masking masking, const TileArguments& arguments, int ctas, cudaStream_t stream);
template <class Element>  // in sequences_<dtype>.cu
void launch_wgmma_sequences(int tile, const WithSequences<TileArguments>& arguments, int ctas, cudaStream_t stream);

}  // namespace xgemm::attention
