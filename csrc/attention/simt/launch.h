// The launch of a plan on CUDA cores.
#pragma once
#include <cuda_runtime.h>

#include "attention/arguments.h"
#include "attention/simt/plan.h"

namespace xgemm::attention {

/// Launches kSimtTiles[plan.tile] and, if blocks split the keys, the merge.
void launch_simt(const SimtPlan& plan, const Arguments& arguments, cudaStream_t stream);

// Its parts, one source file per family of tiles, so that they compile in parallel.
void launch_many_rows(const SimtPlan& plan, const Arguments& arguments, cudaStream_t stream);
void launch_few_rows(const SimtPlan& plan, const Arguments& arguments, cudaStream_t stream);
void launch_fp64(const SimtPlan& plan, const Arguments& arguments, cudaStream_t stream);

}  // namespace xgemm::attention
