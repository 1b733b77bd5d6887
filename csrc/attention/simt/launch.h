// The launch of a plan on CUDA cores.
#pragma once
#include <cuda_runtime.h>

#include "attention/arguments.h"
#include "attention/simt/plan.h"
#include "attention/tiles/sequence_tiles.h"

namespace xgemm::attention {

/// The arguments of simt/tile.cuh. Of sequences: batch_sizes are those of the query, sequences or 1 if it is packed, and key
/// heads.
struct SimtArguments : Arguments {
  Sequences sequences = {};         ///< `count` 0: a dense call
  std::int64_t page_steps[2] = {};  ///< from a page of keys, and of values, to the next
};

/// Launches kSimtTiles[plan.tile] and, if blocks split the keys, the merge. `partials`: plan.partial_bytes() for
/// arguments.total_rows(), uninitialised.
void launch_simt(const SimtPlan& plan, SimtArguments arguments, void* partials, cudaStream_t stream);
/// The plan's tile: one in fp64 (fp64.cu), or one of the others (fp32.cu).
template <bool kFp64>
void launch_simt_tile(const SimtPlan& plan, const SimtArguments& arguments, cudaStream_t stream);

/// Of sequences, with the Arguments of mma/launch.h.
SimtPlan plan_simt_sequences(const Arguments& arguments, const Sequences& sequences);
SimtArguments simt_arguments(const Arguments& arguments, const Sequences& sequences);

}  // namespace xgemm::attention
