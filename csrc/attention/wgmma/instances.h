// The instantiations of kernel.cuh, a source file a dtype, so that they compile side by side.
#pragma once
#include <cuda_runtime.h>

#include "attention/wgmma/arguments.h"

namespace xgemm::attention {

void launch_wgmma_half(int tile, const WgmmaArguments& arguments, int ctas, cudaStream_t stream);
void launch_wgmma_bf16(int tile, const WgmmaArguments& arguments, int ctas, cudaStream_t stream);

}  // namespace xgemm::attention
