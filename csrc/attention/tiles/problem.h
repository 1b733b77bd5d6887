// From the op's operands to the problem and the arguments of the tensor-core kernels.
#pragma once
#include <cuda_runtime.h>

#include "attention/arguments.h"
#include "attention/tiles/arguments.h"
#include "attention/tiles/plan.h"

namespace xgemm::attention {

/// plan_tiles()'s problem, without `table` and `sm_count`, which the caller adds after it has checked the GPU.
Problem tile_problem(const Arguments& arguments);

/// Fills the kernel's arguments except tensor maps and their steps. `counters`: plan.counter_bytes() of zeros; `memory`:
/// plan.memory_bytes(), uninitialised. Launches the classification of the mask if the plan has tiles for it.
void fill_arguments(TileArguments& g, const Plan& plan, const Arguments& arguments, void* counters, void* memory,
                    cudaStream_t stream);

/// The arguments of the tiles of a call of sequences, once `g` is filled; launches what lists the tiles. `memory`:
/// plan.memory_bytes(), as fill_arguments() got it.
WithSequences<TileArguments> sequence_arguments(const SequencePlan& plan, const TileArguments& g, const Sequences& sequences,
                                                void* memory, cudaStream_t stream);

/// Sizes of the batch dims of `arguments`, at most two, innermost (0) first.
std::int64_t batches(const Arguments& arguments, int dim);
/// An operand's own batches along dim 0 (inner) or 1 (outer), 1 if all share one; and the stride between them.
std::int64_t map_batches(const Arguments& arguments, const Operand& operand, int dim);
std::int64_t batch_stride(const Arguments& arguments, const Operand& operand, int dim);
/// Strides of a tensor map are positive and under 2^40 bytes.
bool walkable(std::int64_t size, std::int64_t stride);

/// Does a query head have a mask of its own?
bool own_head_masks(const Arguments& arguments);
/// Do the rows of a tile, positions and `packed` heads, have masks of their own?
bool own_row_masks(const Arguments& arguments, int packed);
/// Are a mask's columns adjacent, and its base and other strides multiples of so many elements?
bool mask_multiples(const Arguments& arguments, std::int64_t of);
/// Are 16 keys of a mask contiguous and aligned to 16 bytes?
bool has_mask_vectors(const Arguments& arguments);

}  // namespace xgemm::attention
