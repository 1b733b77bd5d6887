// The launch of the decoding kernel from the op's operands.
#pragma once
#include <cuda_runtime.h>

#include "attention/arguments.h"
#include "attention/decode/arguments.h"
#include "attention/decode/plan.h"

namespace xgemm::attention {

/// `partials`: plan.partial_bytes, uninitialised.
void launch_decode(const DecodePlan& plan, const Arguments& arguments, void* partials, cudaStream_t stream);

// The instantiations of kernel.cuh and of the merge, one source file per head size.
void launch_decode_64(const DecodePlan& plan, const DecodeArguments& arguments, cudaStream_t stream);
void launch_decode_128(const DecodePlan& plan, const DecodeArguments& arguments, cudaStream_t stream);
void launch_decode_256(const DecodePlan& plan, const DecodeArguments& arguments, cudaStream_t stream);

}  // namespace xgemm::attention
