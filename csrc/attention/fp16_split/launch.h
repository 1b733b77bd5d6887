// The launch of fp32 attention by fp16 parts from the op's operands.
#pragma once
#include <cuda_runtime.h>

#include "attention/arguments.h"
#include "attention/fp16_split/tile.h"
#include "attention/tiles/plan.h"

namespace xgemm::attention {

/// Offsets in the workspace, in bytes.
struct SplitPlan {
  int parts;  ///< of a number: 2, for fp32's accuracy, or 1, for TF32's
  Plan rows;  ///< tiles of rows and splits of keys
  struct Parts {
    std::int64_t parts, scales, status;
    std::int64_t batches, rows, blocks, padded;  ///< the operand's own batches; rows and blocks of rows of each; padded columns
  };
  Parts query, key, value;
  std::int64_t failed, memory, bytes;  ///< `memory`: of the attention kernel; `bytes`: the whole size

  int tile() const { return static_cast<int>(&rows.info() - kSplitTiles.data()); }  ///< index into kSplitTiles
};

/// Nothing if the kernel does not take the call; the caller checks for sm_90. `parts`: per number, 2 or 1.
std::optional<SplitPlan> plan_fp16_split(const Arguments& arguments, int sm_count, int parts);

/// `counters`: plan.rows.counter_bytes() of zeros, zeros again afterwards; `workspace`: plan.bytes, uninitialised. Returns
/// Arguments::failed, a word per batch in the workspace: the kernel on CUDA cores computes the batches that the parts cannot
/// represent. Null if the driver makes no tensor maps: nothing was launched.
const unsigned* launch_fp16_split(const SplitPlan& plan, const Arguments& arguments, void* counters, void* workspace,
                                  cudaStream_t stream);

}  // namespace xgemm::attention
