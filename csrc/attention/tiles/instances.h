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
/// sequence_list.cu: arguments.schedule.entries items.
void launch_sequence_list(const WithSequences<TileArguments>& arguments, SequenceItem* list, cudaStream_t stream);
/// mask_tiles.cuh for tiles of so many rows and keys.
void launch_classify(int rows, int keys, const MaskTilesArguments& arguments, unsigned ctas, cudaStream_t stream);

/// Arguments of append.cu.
struct AppendArguments {
  struct Operand {
    const void* from;
    void* to;
    /// In words. Of `from`: of sequences; of `to`: of pages.
    std::int64_t from_outer, from_row, from_head, from_column, to_outer, to_row, to_head, to_column;
    Divider columns;  ///< of a row, in words
  } operands[2];      ///< keys, values
  Divider heads, appended;
  std::int64_t words[2];  ///< of all new keys, of all new values
  Sequences sequences;
};
/// `word_bytes`: 16, 8, 4 or 2.
void launch_append(const AppendArguments& arguments, int word_bytes, cudaStream_t stream);

}  // namespace xgemm::attention
