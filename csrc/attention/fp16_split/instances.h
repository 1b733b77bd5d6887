// The instantiations of kernel.cuh and split.cuh.
#pragma once
#include <cuda_runtime.h>

#include "attention/fp16_split/arguments.h"
#include "attention/fp16_split/tile.h"

namespace xgemm::attention {

void launch_fp16_split(int tile, Masking masking, const SplitArguments& arguments, int ctas, cudaStream_t stream);
void launch_split_operands(int tile, const SplitOperands& operands, cudaStream_t stream);

}  // namespace xgemm::attention
