// The instantiations of kernel.cuh and split.cuh: one source file for two parts (three products), one for one part.
#pragma once
#include <cuda_runtime.h>

#include "attention/fp16_split/arguments.h"
#include "attention/fp16_split/tile.h"

namespace xgemm::attention {

void launch_fp16x3(int tile, Masking masking, const SplitArguments& arguments, int ctas, cudaStream_t stream);
void launch_fp16x1(int tile, Masking masking, const SplitArguments& arguments, int ctas, cudaStream_t stream);
void split_fp16x3(int tile, const SplitOperands& operands, cudaStream_t stream);
void split_fp16x1(int tile, const SplitOperands& operands, cudaStream_t stream);
/// splits.cuh, for so many rows in memory. `natural_units`: the units of scores with an additive mask.
void launch_split_merge(bool natural_units, const SplitArguments& arguments, std::int64_t rows, cudaStream_t stream);

}  // namespace xgemm::attention
