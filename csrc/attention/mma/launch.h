// The launch of the mma.sync kernels from the op's operands.
#pragma once
#include <cuda_runtime.h>

#include "attention/arguments.h"
#include "attention/mma/arguments.h"
#include "attention/mma/plan.h"

namespace xgemm::attention {

/// `problem`, `counters` and `memory` as for launch_wgmma(): tile_problem(), plan.counter_bytes() zeros, plan.memory_bytes().
void launch_mma(const Plan& plan, const Arguments& arguments, void* counters, void* memory, cudaStream_t stream);

/// The instantiations of kernel.cuh and many_rows.cuh. `masked`: with a boolean or additive mask.
void launch_mma_half(int tile, bool masked, const MmaArguments& arguments, unsigned ctas, cudaStream_t stream);
void launch_mma_bf16(int tile, bool masked, const MmaArguments& arguments, unsigned ctas, cudaStream_t stream);
void launch_many_rows_half(int tile, bool masked, const MmaArguments& arguments, unsigned ctas, cudaStream_t stream);
void launch_many_rows_bf16(int tile, bool masked, const MmaArguments& arguments, unsigned ctas, cudaStream_t stream);

}  // namespace xgemm::attention
