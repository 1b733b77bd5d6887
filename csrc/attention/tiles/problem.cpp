#include "attention/tiles/problem.h"

#include <algorithm>
#include <cmath>

#include "attention/tiles/instances.h"

namespace xgemm::attention {
namespace {

Masking masking_of(const Arguments& a) {
  if (!a.masked) return Masking::edges;
  return a.mask_dtype == DType::boolean ? Masking::boolean : Masking::additive;
}

MaskArguments mask_of(const Arguments& a) {
  const Operand& x = a.mask;
  MaskArguments mask{};
  mask.strides = {batch_stride(a, x, 1), batch_stride(a, x, 0), x.group, x.row, x.column};
  mask.values = x.data, mask.dtype = a.mask_dtype, mask.pairs = mask_multiples(a, 2);
  return mask;
}

/// Launches the classification of g.mask, whose classes and bits are at `memory`.
void classify_mask_tiles(TileArguments& g, const Plan& plan, const Arguments& a, char* memory, cudaStream_t stream) {
  const Operand& x = a.mask;
  MaskTilesArguments m{};
  MaskArguments& mask = g.mask;
  m.vector = has_mask_vectors(a);

  const bool own_heads = own_head_masks(a), own_rows = own_row_masks(a, plan.packed);
  const int row_tiles = own_rows ? plan.row_tiles : 1, heads = own_heads ? a.group / plan.packed : 1,
            inner = static_cast<int>(map_batches(a, x, 0));
  m.key_tiles = ShortDivider::of(plan.key_tiles), m.row_tiles = ShortDivider::of(row_tiles);
  m.heads = ShortDivider::of(heads), m.inner = ShortDivider::of(inner);
  mask.steps.row = own_rows;
  mask.steps.head = own_heads ? row_tiles : 0;
  mask.steps.inner = inner > 1 ? heads * row_tiles : 0;
  mask.steps.outer = map_batches(a, x, 1) > 1 ? inner * heads * row_tiles : 0;
  mask.key_tiles = plan.key_tiles;
  mask.bits = reinterpret_cast<uint2*>(memory);
  mask.classes = reinterpret_cast<unsigned char*>(memory + plan.mask_bit_bytes());
  m.rows = a.sq * plan.packed, m.pack = ShortDivider::of(plan.packed), m.tile_rows = plan.tile_rows, m.sk = a.sk;
  m.mask = mask;
  launch_classify(plan.info().rows(), plan.info().keys, m, static_cast<unsigned>(plan.mask_tiles * plan.key_tiles), stream);
}

}  // namespace

bool mask_multiples(const Arguments& a, std::int64_t of) {
  const Operand& x = a.mask;
  const std::int64_t others[] = {batch_stride(a, x, 1), batch_stride(a, x, 0), x.group, x.row,
                                 reinterpret_cast<std::intptr_t>(x.data) / static_cast<std::int64_t>(size_of(a.mask_dtype))};
  return x.column == 1 && std::ranges::all_of(others, [of](std::int64_t i) { return i % of == 0; });
}

Problem tile_problem(const Arguments& a) {
  Problem p{.causal = a.last < a.sk,
            .batches = a.batches,
            .group = a.group,
            .sq = a.sq,
            .sk = a.sk,
            .key_begin = std::clamp<std::int64_t>(a.first, 0, a.sk),
            .key_end = std::clamp<std::int64_t>(a.sq - 1 + a.last, 0, a.sk),
            .d = a.d,
            .dv = a.dv,
            .masking = masking_of(a),
            .mask_batches = map_batches(a, a.mask, 0) * map_batches(a, a.mask, 1),
            .mask_heads = own_head_masks(a),
            .mask_rows = a.mask.row != 0};
  constexpr double kLargestCap = 1024;  // cap_scores() has an error of 2^-22 of the cap: 2^-12 then, as half precision
  p.possible = is_half(a.dtype) && a.key_group == 1 && a.value_group == 1 && a.batch_dims <= 2 &&
               static_cast<float>(a.scale) > (a.sinks.data == nullptr ? 0 : 1e-20f) &&
               std::isfinite(static_cast<float>(2 * a.scale)) &&
               (a.cap_scale == 0 || (static_cast<float>(a.cap_scale) != 0 && a.scale <= kLargestCap)) && a.query.vector &&
               a.key.vector && a.value.vector && a.dv % 8 == 0 && walkable(a.sq, a.query.row) &&
               walkable(a.group, a.query.group) && walkable(a.sk, a.key.row) && walkable(a.sk, a.value.row);
  for (const Operand* x : {&a.query, &a.key, &a.value}) p.possible = p.possible && walkable_batches(a, *x);
  return p;
}

void fill_arguments(TileArguments& g, const Plan& plan, const Arguments& a, void* memory, cudaStream_t stream) {
  g.out = a.output, g.out_rows = a.output_rows, g.lse = static_cast<float*>(a.lse);
  g.sq = a.sq, g.sk = a.sk, g.dv = a.dv;
  g.first = static_cast<int>(a.first), g.last = static_cast<int>(a.last);
  g.score_scale = static_cast<float>(a.scale);
  g.scale = plan.masking == Masking::additive ? 1 : g.score_scale;
  g.scale_log2 = static_cast<float>((plan.masking == Masking::additive ? 1 : a.scale) * 1.4426950408889634);
  g.cap_scale = static_cast<float>(a.cap_scale);
  g.sinks = {a.sinks.data, a.sinks_dtype, batch_stride(a, a.sinks, 1), batch_stride(a, a.sinks, 0), a.sinks.group};

  g.pack = ShortDivider::of(plan.packed);
  g.tile_rows = plan.tile_rows, g.row_tiles = plan.row_tiles;
  g.section_heads = ShortDivider::of(plan.section_heads);
  g.section = ShortDivider::of(std::int64_t{plan.row_tiles} * plan.section_heads);
  g.tile_heads = ShortDivider::of(a.group / plan.packed);
  g.inner = ShortDivider::of(batches(a, 0));
  g.splits = ShortDivider::of(plan.splits);
  g.split_tiles = plan.split_tiles, g.first_split = plan.first_split;
  g.items = static_cast<int>(plan.items());

  g.through_memory = plan.through_memory, g.merge_slices = merge_slices(plan.merged_rows(), plan.splits, plan.info().value_size);
  g.partial_rows = plan.partial_rows, g.partial_columns = plan.info().value_size;
  g.partial_states = static_cast<float2*>(memory);
  g.partial_outputs = reinterpret_cast<float*>(static_cast<char*>(memory) + plan.state_bytes());
  if (!has_mask(plan.masking)) return;
  g.mask = mask_of(a);
  if (plan.mask_tiles > 0) classify_mask_tiles(g, plan, a, static_cast<char*>(memory) + plan.partial_bytes(), stream);
}

WithSequences<TileArguments> sequence_arguments(const SequencePlan& plan, const TileArguments& g, const Sequences& sequences,
                                                void* memory, cudaStream_t stream) {
  WithSequences<TileArguments> all{g, sequences, plan.schedule};
  all.merge_slices = merge_slices(plan.merged_rows(), plan.mean_splits, plan.tiles.info().value_size);
  if (!plan.listed) return all;
  auto* const list = reinterpret_cast<SequenceItem*>(static_cast<char*>(memory) + plan.tiles.memory_bytes());
  launch_sequence_list(all, list, stream);
  all.schedule.list = list;
  return all;
}

}  // namespace xgemm::attention
