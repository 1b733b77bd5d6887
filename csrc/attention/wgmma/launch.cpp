#include "attention/wgmma/launch.h"

#include <algorithm>

#include "attention/tiles/instances.h"
#include "attention/wgmma/tiles.h"
#include "attention/wgmma/wide.h"
#include "device/numeric.cuh"
#include "device/tensor_map.h"

namespace xgemm::attention {
namespace {

/// The map of queries, outputs or a mask: a box is `rows` rows of the `packed` of `heads` heads that a tile interleaves.
bool make_rows_map(CUtensorMap& map, const Arguments& a, const Operand& x, DType dtype, int columns, int heads, int packed,
                   int rows, int box_columns = 64, int swizzle_bytes = Tile::kBlockBytes) {
  return make_tensor_map(map, {.data = x.data,
                               .dtype = dtype,
                               .sizes = {columns, heads, a.sq, map_batches(a, x, 0), map_batches(a, x, 1)},
                               .strides = {x.group, x.row, batch_stride(a, x, 0), batch_stride(a, x, 1)},
                               .box = {box_columns, packed, rows},
                               .swizzle_bytes = swizzle_bytes,
                               .rank = 5});
}

/// The map of keys or values.
bool make_keys_map(CUtensorMap& map, const Arguments& a, const Operand& x, int columns, int keys) {
  return make_tensor_map(map, {.data = x.data,
                               .dtype = a.dtype,
                               .sizes = {columns, a.sk, map_batches(a, x, 0), map_batches(a, x, 1)},
                               .strides = {x.row, batch_stride(a, x, 0), batch_stride(a, x, 1)},
                               .box = {64, keys},
                               .swizzle_bytes = Tile::kBlockBytes,
                               .rank = 4});
}

/// The map of an additive mask that TMA loads. A box: a warpgroup's 64 rows, of one head or of all that a tile interleaves.
bool make_mask_map(TileArguments& g, const Plan& plan, const Arguments& a) {
  const int heads = own_head_masks(a) ? a.group : 1, packed = own_head_masks(a) ? plan.packed : 1;
  g.mask.slot_rows = static_cast<std::uint8_t>(64 / plan.packed * packed);
  return make_rows_map(g.mask_map, a, a.mask, a.mask_dtype, a.sk, heads, packed, 64 / plan.packed, plan.info().mask_columns(),
                       plan.info().mask_swizzled() ? Tile::kBlockBytes : 0);
}

Operand output_operand(const Arguments& a) {
  const auto heads_beside = static_cast<std::int64_t>(a.output_rows.beside.divisor);
  Operand output{.data = a.output, .row = a.dv, .column = 1, .group = std::int64_t{a.sq} * a.dv};
  if (heads_beside != 0) output.row = heads_beside * a.dv, output.group = a.dv;
  if (a.batch_dims > 0) output.batch[a.batch_dims - 1] = a.group * output.group;
  if (a.batch_dims > 1) output.batch[a.batch_dims - 2] = batches(a, 0) * a.group * std::int64_t{a.sq} * a.dv;
  return output;
}

TileArguments::Steps steps_of(const Arguments& a, const Operand& x) {
  return {map_batches(a, x, 0) > 1, map_batches(a, x, 1) > 1};
}

/// `keys`: of a box; `values`, `outputs`: does TMA load, or store, them? `of_keys`: the call with the batches of keys and values.
bool make_maps(TileArguments& g, const Plan& plan, const Arguments& a, const Arguments& of_keys, int keys, bool values,
               bool outputs) {
  g.query_steps = steps_of(a, a.query), g.key_steps = steps_of(of_keys, a.key), g.value_steps = steps_of(of_keys, a.value);
  return make_rows_map(g.query, a, a.query, a.dtype, a.d, a.group, plan.packed, plan.tile_rows / plan.packed) &&
         make_keys_map(g.key, of_keys, a.key, a.d, keys) && (!values || make_keys_map(g.value, of_keys, a.value, a.dv, keys)) &&
         (!outputs || make_rows_map(g.output, a, output_operand(a), a.dtype, a.dv, a.group, plan.packed, 16 / plan.packed));
}

}  // namespace

/// A mask row that all queries share is not loaded by TMA: 32 lanes load the same few bytes.
Masking launched_masking(const Plan& plan, const Arguments& a) {
  const Operand& x = a.mask;
  const bool possible = plan.masking == Masking::additive && plan.info().serves(Masking::additive_tma) &&
                        a.mask_dtype == a.dtype && mask_multiples(a, 8) && (!own_head_masks(a) || walkable(a.group, x.group)) &&
                        walkable(a.sq, x.row) && walkable_batches(a, x);
  return possible ? Masking::additive_tma : plan.masking;
}

void divide_group(Arguments& a, int dim) {
  int group = std::min(a.group, kWideTiles[0].rows());
  while (a.group % group != 0) --group;
  const auto groups = static_cast<std::uint32_t>(a.group / group);
  a.batch_sizes[dim] = groups, a.batches *= groups, a.batch_dims = std::max(a.batch_dims, dim + 1);
  a.query.batch[dim] = group * a.query.group, a.sinks.batch[dim] = group * a.sinks.group;
  a.key.batch[dim] = a.value.batch[dim] = 0;
  a.group = group;
}

bool launch_wide(const Plan& plan, const Arguments& a, void* memory, cudaStream_t stream) {
  const bool latent = &plan.info() == &kWideTiles[1];
  TileArguments g{};
  if (!make_maps(g, plan, a, a, kWideSlotKeys, !latent, false)) return false;
  fill_arguments(g, plan, a, memory, stream);
  launch_wide(a.dtype, latent, g, plan.ctas, stream);
  if (plan.through_memory) launch_merge(a.dtype, g, plan.merged_rows(), stream);
  return true;
}

std::optional<SequencePlan> plan_wide_sequences(const Problem& problem, const Sequences& sequences, bool latent) {
  const std::optional<Plan> plan = plan_wide(problem, latent);
  return plan ? plan_sequences(problem, sequences, *plan, SequenceKernel::many_rows) : std::nullopt;
}

bool launch_wide(const SequencePlan& plan, const Arguments& a, const Sequences& s, void* memory, cudaStream_t stream) {
  const bool latent = &plan.tiles.info() == &kWideTiles[1];
  Arguments of_keys = a;
  of_keys.batch_sizes[0] = static_cast<std::uint32_t>(s.key_offsets != nullptr ? 1 : s.pages);
  if (!walkable_batches(of_keys, a.key) || !walkable_batches(of_keys, a.value)) return false;
  TileArguments g{};
  if (!make_maps(g, plan.tiles, a, of_keys, wide_box_rows(s), !latent, false)) return false;
  fill_arguments(g, plan.tiles, a, memory, stream);
  const WithSequences<TileArguments> all = sequence_arguments(plan, g, s, memory, stream);
  launch_wide(a.dtype, latent, all, plan.tiles.ctas, stream);
  if (plan.tiles.through_memory) launch_merge(a.dtype, all, plan.merged_rows(), stream);
  return true;
}

bool launch_wgmma(const Plan& plan, const Arguments& a, void* counters, void* memory, cudaStream_t stream) {
  TileArguments g{};
  if (!make_maps(g, plan, a, a, plan.info().keys, true, !plan.through_memory)) return false;
  fill_arguments(g, plan, a, memory, stream);
  if (plan.shares_items()) g.next_item = static_cast<unsigned*>(counters);
  Masking masking = launched_masking(plan, a);
  if (masking == Masking::additive_tma && !make_mask_map(g, plan, a)) masking = plan.masking;
  (a.dtype == DType::f16 ? launch_wgmma<half> : launch_wgmma<bf16>)(plan.tile, masking, g, plan.ctas, stream);
  if (plan.through_memory) launch_merge(a.dtype, g, plan.merged_rows(), stream);
  return true;
}

std::optional<SequencePlan> plan_wgmma_sequences(Problem problem, const Sequences& sequences) {
  if (sequences.table != nullptr || (sequences.query_offsets == nullptr) != (sequences.key_offsets == nullptr)) return {};
  problem.table = kWgmmaTiles;
  const std::optional<Plan> plan = plan_tiles(problem);
  return plan ? plan_sequences(problem, sequences, *plan, SequenceKernel::persistent) : std::nullopt;
}

bool launch_wgmma(const SequencePlan& plan, const Arguments& a, const Sequences& sequences, void* counters, void* memory,
                  cudaStream_t stream) {
  TileArguments g{};
  if (!make_maps(g, plan.tiles, a, a, plan.tiles.info().keys, true, !plan.tiles.through_memory)) return false;
  fill_arguments(g, plan.tiles, a, memory, stream);
  if (plan.tiles.shares_items()) g.next_item = static_cast<unsigned*>(counters);
  const WithSequences<TileArguments> all = sequence_arguments(plan, g, sequences, memory, stream);
  (a.dtype == DType::f16 ? launch_wgmma_sequences<half> : launch_wgmma_sequences<bf16>)(plan.tiles.tile, all, plan.tiles.ctas,
                                                                                        stream);
  return true;
}

}  // namespace xgemm::attention
