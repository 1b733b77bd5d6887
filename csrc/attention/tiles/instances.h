// Kernels that the families share.
#pragma once
#include <cuda_runtime.h>

#include "attention/tiles/arguments.h"
#include "attention/tiles/sequence_tiles.h"
#include "device/dtype.h"

namespace xgemm::attention {

/// merge.cuh, for so many rows in memory.
void launch_merge(DType dtype, const TileArguments& arguments, std::int64_t rows, cudaStream_t stream);
void launch_merge(DType dtype, const WithSequences<TileArguments>& arguments, std::int64_t rows, cudaStream_t stream);
/// sequence_list.cuh: arguments.schedule.entries items.
void launch_sequence_list(const WithSequences<TileArguments>& arguments, SequenceItem* list, cudaStream_t stream);
/// mask_tiles.cuh for tiles of so many rows and keys.
void launch_classify(int rows, int keys, const MaskTilesArguments& arguments, unsigned ctas, cudaStream_t stream);

}  // namespace xgemm::attention
