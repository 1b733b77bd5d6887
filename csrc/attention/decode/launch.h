// The launch of the decoding kernel from the op's operands.
#pragma once
#include <cuda_runtime.h>

#include "attention/arguments.h"
#include "attention/decode/plan.h"

namespace xgemm::attention {

/// `partials`: plan.partial_bytes, uninitialised.
void launch_decode(const DecodePlan& plan, const Arguments& arguments, void* partials, cudaStream_t stream);

}  // namespace xgemm::attention
