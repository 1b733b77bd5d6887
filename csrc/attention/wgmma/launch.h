// The launch of the tensor-core kernel from the op's operands.
#pragma once
#include <cuda_runtime.h>

#include "attention/arguments.h"
#include "attention/wgmma/plan.h"

namespace xgemm::attention {

/// Does the kernel take these operands, apart from their sizes? sm_90 is the caller's to check.
bool serves_wgmma(const Arguments& arguments);

/// `counters`, `partials`: plan.counter_bytes() zeros, which it leaves zeros, and plan.partial_bytes() of anything. False if the
/// driver makes no tensor maps: nothing was launched.
bool launch_wgmma(const WgmmaPlan& plan, const Arguments& arguments, void* counters, void* partials, cudaStream_t stream);

}  // namespace xgemm::attention
