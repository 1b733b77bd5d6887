// The launch of append.cuh.
#pragma once
#include <cuda_runtime.h>

#include "attention/tiles/sequence_tiles.h"

namespace xgemm::attention {

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
