// The launch of the tensor-core kernel from the op's operands.
#pragma once
#include <cuda_runtime.h>

#include "attention/arguments.h"
#include "attention/wgmma/arguments.h"
#include "attention/wgmma/plan.h"

namespace xgemm::attention {

/// What plan_wgmma() asks, but for the GPU: the caller adds `sm_count`, and leaves the kernel to sm_90.
WgmmaProblem wgmma_problem(const Arguments& arguments);

/// Everything of the kernel's arguments but what describes the operands' places, for `counters` and `memory` as below; has a mask
/// classified.
void fill_arguments(WgmmaArguments& g, const WgmmaPlan& plan, const Arguments& arguments, void* counters, void* memory,
                    cudaStream_t stream);

/// The plan's, or additive_tma where TMA can load the mask.
Masking launched_masking(const WgmmaPlan& plan, const Arguments& arguments);

/// Batches of an operand of its own along dim 0 (inner) or 1 (outer), 1 where all share one, and from one to the next.
std::int64_t map_batches(const Arguments& arguments, const Operand& operand, int dim);
std::int64_t batch_stride(const Arguments& arguments, const Operand& operand, int dim);

/// `counters`: plan.counter_bytes() zeros, which it leaves zeros; `memory`: plan.memory_bytes() of anything. False if the driver
/// makes no tensor maps: nothing was launched.
bool launch_wgmma(const WgmmaPlan& plan, const Arguments& arguments, void* counters, void* memory, cudaStream_t stream);

}  // namespace xgemm::attention
