// The launch of fp32 attention by fp16 parts from the op's operands.
#pragma once
#include <cuda_runtime.h>

#include "attention/arguments.h"
#include "attention/fp16_split/tile.h"
#include "attention/wgmma/plan.h"

namespace xgemm::attention {

/// Where things are in the workspace, in bytes from its beginning.
struct SplitPlan {
  int parts;       ///< of a number: 2, for fp32's accuracy, or 1, for TF32's
  WgmmaPlan rows;  ///< how rows and keys are cut
  struct Parts {
    std::int64_t parts, scales, status;
    std::int64_t batches, rows, blocks, padded;  ///< of the operand's own batches; rows and blocks of rows of each; columns
  };
  Parts query, key, value;
  std::int64_t failed, memory, bytes;  ///< `memory`: what the attention kernel wants; `bytes`: of all

  int tile() const { return static_cast<int>(&rows.info() - kSplitTiles.data()); }  ///< index into kSplitTiles
};

/// Nothing where the kernel does not take the call; the caller leaves it to sm_90. `parts`: of a number, 2 or 1.
std::optional<SplitPlan> plan_fp16_split(const Arguments& arguments, int sm_count, int parts);

/// `counters`: plan.rows.counter_bytes() zeros, which it leaves zeros; `workspace`: plan.bytes of anything. What the parts cannot
/// carry is left for the kernel on CUDA cores: the word a batch, in the workspace, that Arguments::failed wants. Null if the
/// driver makes no tensor maps: nothing was launched.
const unsigned* launch_fp16_split(const SplitPlan& plan, const Arguments& arguments, void* counters, void* workspace,
                                  cudaStream_t stream);

}  // namespace xgemm::attention
