// The instantiations of kernel.cuh, one source file per dtype so that they compile in parallel, and of mask_tiles.cuh.
#pragma once
#include <cuda_runtime.h>

#include "attention/wgmma/arguments.h"
#include "attention/wgmma/tile.h"

namespace xgemm::attention {

void launch_wgmma_half(int tile, Masking masking, const WgmmaArguments& arguments, int ctas, cudaStream_t stream);
void launch_wgmma_bf16(int tile, Masking masking, const WgmmaArguments& arguments, int ctas, cudaStream_t stream);
/// merge.cuh, for so many rows in memory.
void launch_merge(DType dtype, const WgmmaArguments& arguments, std::int64_t rows, cudaStream_t stream);
/// mask_tiles.cuh for tiles of so many rows and keys.
void launch_classify(int rows, int keys, const MaskTilesArguments& arguments, unsigned ctas, cudaStream_t stream);

}  // namespace xgemm::attention
