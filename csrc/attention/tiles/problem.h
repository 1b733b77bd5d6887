// From the op's operands to the problem and the arguments of the tensor-core kernels.
#pragma once
#include <cuda_runtime.h>

#include "attention/arguments.h"
#include "attention/tiles/arguments.h"
#include "attention/tiles/plan.h"

namespace xgemm::attention {

/// plan_tiles()'s problem, without `table` and `sm_count`, which the caller adds after it has checked the GPU.
Problem tile_problem(const Arguments& arguments);

/// Fills the kernel's arguments except tensor maps, their steps and `next_item`. `memory`: plan.memory_bytes(), uninitialised.
/// Launches the classification of the mask if the plan has tiles for it.
void fill_arguments(TileArguments& g, const Plan& plan, const Arguments& arguments, void* memory, cudaStream_t stream);

/// The arguments of the tiles of a call of sequences, once `g` is filled; launches what lists the tiles. `memory`:
/// plan.memory_bytes(), as fill_arguments() got it.
WithSequences<TileArguments> sequence_arguments(const SequencePlan& plan, const TileArguments& g, const Sequences& sequences,
                                                void* memory, cudaStream_t stream);

/// Sizes of the batch dims of a call, at most two, innermost (0) first.
inline std::int64_t batches(const Arguments& a, int dim) {
  return a.batch_dims > dim ? a.batch_sizes[a.batch_dims - 1 - dim] : 1;
}
/// The stride between an operand's batches along dim 0 (inner) or 1 (outer); and their number, 1 if all share one.
inline std::int64_t batch_stride(const Arguments& a, const Operand& x, int dim) {
  return a.batch_dims > dim && batches(a, dim) > 1 ? x.batch[a.batch_dims - 1 - dim] : 0;
}
inline std::int64_t map_batches(const Arguments& a, const Operand& x, int dim) {
  return batch_stride(a, x, dim) == 0 ? 1 : batches(a, dim);
}
/// Strides of a tensor map are positive and under 2^40 bytes.
inline bool walkable(std::int64_t size, std::int64_t stride) {
  return size <= 1 || (stride > 0 && stride < std::int64_t{1} << 39);
}
inline bool walkable_batches(const Arguments& a, const Operand& x) {
  return walkable(map_batches(a, x, 0), batch_stride(a, x, 0)) && walkable(map_batches(a, x, 1), batch_stride(a, x, 1));
}

/// Does a query head have a mask of its own?
inline bool own_head_masks(const Arguments& a) { return a.group > 1 && a.mask.group != 0; }
/// Do the rows of a tile, positions and `packed` heads, have masks of their own?
inline bool own_row_masks(const Arguments& a, int packed) { return a.mask.row != 0 || (own_head_masks(a) && packed > 1); }
/// Are a mask's columns adjacent, and its base and other strides multiples of so many elements?
bool mask_multiples(const Arguments& arguments, std::int64_t of);
/// Are 16 keys of a mask contiguous and aligned to 16 bytes?
inline bool has_mask_vectors(const Arguments& a) {
  return mask_multiples(a, 16 / static_cast<std::int64_t>(size_of(a.mask_dtype)));
}

}  // namespace xgemm::attention
