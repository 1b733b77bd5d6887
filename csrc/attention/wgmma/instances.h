// The instantiations of kernel.cuh, one source file per dtype so that they compile in parallel.
#pragma once
#include <cuda_runtime.h>

#include "attention/tiles/arguments.h"
#include "attention/tiles/sequence_tiles.h"
#include "attention/tiles/tile.h"

namespace xgemm::attention {

void launch_wgmma_half(int tile, Masking masking, const TileArguments& arguments, int ctas, cudaStream_t stream);
void launch_wgmma_bf16(int tile, Masking masking, const TileArguments& arguments, int ctas, cudaStream_t stream);
void launch_wgmma_sequences_half(int tile, const WithSequences<TileArguments>& arguments, int ctas, cudaStream_t stream);
void launch_wgmma_sequences_bf16(int tile, const WithSequences<TileArguments>& arguments, int ctas, cudaStream_t stream);

}  // namespace xgemm::attention
