// The launch of fp32 attention by fp16 parts from the op's operands.
#pragma once
#include <cuda_runtime.h>

#include "attention/arguments.h"
#include "attention/fp16_split/arguments.h"
#include "attention/fp16_split/tile.h"
#include "attention/tiles/plan.h"

namespace xgemm::attention {

struct SplitPlan {
  int parts;               ///< of a number: 2, for fp32's accuracy, or 1, for TF32's
  bool portable;           ///< by mma.sync: kSplitMmaTiles
  Plan rows;               ///< tiles of rows and splits of keys
  std::int64_t bytes = 0;  ///< of the workspace

  /// Index into kSplitTiles or kSplitMmaTiles.
  int tile() const { return portable ? rows.tile : static_cast<int>(&rows.info() - kSplitTiles.data()); }
};

/// Nothing if the kernel does not take the call; the caller checks for sm_90. `parts`: per number, 2 or 1.
std::optional<SplitPlan> plan_fp16_split(const Arguments& arguments, int sm_count, int parts);
/// By mma.sync in two parts.
std::optional<SplitPlan> plan_split_mma(const Arguments& arguments, int sm_count);

/// `workspace`: plan.bytes, uninitialised. Returns Arguments::failed, a word per batch in the workspace: the kernel on CUDA cores
/// computes the batches that the parts cannot represent. Null if the driver makes no tensor maps: nothing was launched.
const unsigned* launch_fp16_split(const SplitPlan& plan, const Arguments& arguments, void* workspace, cudaStream_t stream);

/// kernel.cu, for a tile of kSplitTiles.
void launch_split_tile(int tile, Masking masking, const SplitArguments& arguments, int ctas, cudaStream_t stream);
/// mma_kernel.cu, for a tile of kSplitMmaTiles.
void launch_split_mma(int tile, bool masked, const SplitMmaArguments& arguments, unsigned ctas, cudaStream_t stream);
/// split.cu, for the first tile of kSplitTiles with the head size and number of parts.
void launch_split_operands(int tile, const SplitOperands& operands, cudaStream_t stream);
/// merge.cu, for so many rows in memory. `natural_units`: the units of scores with an additive mask.
void launch_split_merge(bool natural_units, const SplitArguments& arguments, std::int64_t rows, cudaStream_t stream);

}  // namespace xgemm::attention
