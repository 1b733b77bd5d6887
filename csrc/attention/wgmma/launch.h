// The launch of the tensor-core kernel from the op's operands.
#pragma once
#include <cuda_runtime.h>

#include "attention/arguments.h"
#include "attention/wgmma/arguments.h"
#include "attention/wgmma/plan.h"

namespace xgemm::attention {

/// plan_wgmma()'s problem, without `sm_count`, which the caller adds after it has checked for sm_90.
WgmmaProblem wgmma_problem(const Arguments& arguments);

/// Fills the kernel's arguments except tensor maps and their steps, for `counters` and `memory` as below; launches the
/// classification of the mask if the plan has tiles for it.
void fill_arguments(WgmmaArguments& g, const WgmmaPlan& plan, const Arguments& arguments, void* counters, void* memory,
                    cudaStream_t stream);

/// Do the rows of a tile, positions and `packed` heads, have masks of their own?
bool own_row_masks(const Arguments& arguments, int packed);
/// Are 16 keys of a mask contiguous and aligned to 16 bytes?
bool has_mask_vectors(const Arguments& arguments);

/// The plan's masking, or additive_tma if TMA can load the mask.
Masking launched_masking(const WgmmaPlan& plan, const Arguments& arguments);

/// An operand's own batches along dim 0 (inner) or 1 (outer), 1 if all share one; and the stride between them.
std::int64_t map_batches(const Arguments& arguments, const Operand& operand, int dim);
std::int64_t batch_stride(const Arguments& arguments, const Operand& operand, int dim);

/// `counters`: plan.counter_bytes() of zeros, zeros again afterwards; `memory`: plan.memory_bytes(), uninitialised. False if
/// the driver makes no tensor maps: nothing was launched.
bool launch_wgmma(const WgmmaPlan& plan, const Arguments& arguments, void* counters, void* memory, cudaStream_t stream);

}  // namespace xgemm::attention
