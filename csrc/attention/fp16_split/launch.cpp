#include "attention/fp16_split/launch.h"

#include <cmath>

#include "attention/fp16_split/instances.h"
#include "attention/tiles/problem.h"
#include "device/integer.h"
#include "device/tensor_map.h"

namespace xgemm::attention {
namespace {

/// Most rows, and most blocks of rows, of one launch of split.cuh.
constexpr std::int64_t kMost = std::int64_t{1} << 30;

/// Adds an operand's parts, scales and status to the plan's workspace, in blocks of as many rows as a tile has keys, with scales
/// of `scale_bytes` each.
SplitPlan::Parts place(SplitPlan& plan, const Arguments& a, const Operand& x, std::int64_t rows, std::int64_t columns,
                       std::int64_t scale_bytes) {
  const auto take = [&](std::int64_t size) {
    const std::int64_t at = plan.bytes;
    plan.bytes += round_up(size, 128);
    return at;
  };
  SplitPlan::Parts p{.parts = 0,
                     .scales = 0,
                     .status = 0,
                     .batches = map_batches(a, x, 0) * map_batches(a, x, 1),
                     .rows = rows,
                     .blocks = ceil_div(rows, plan.rows.info().keys),
                     .padded = round_up(columns, 8)};
  p.parts = take(2 * plan.parts * p.batches * rows * p.padded);
  p.scales = take(p.batches * p.blocks * scale_bytes);
  p.status = take(4 * p.batches * p.blocks);
  return p;
}

SplitOperand operand(const SplitPlan::Parts& p, const Arguments& a, const Operand& x, int columns, int group, char* workspace) {
  const auto part = p.batches * p.rows * p.padded;
  return {.data = static_cast<const float*>(x.data),
          .row = x.row,
          .column = x.column,
          .head = x.group,
          .inner = batch_stride(a, x, 0),
          .outer = batch_stride(a, x, 1),
          .vector = x.vector && columns % 4 == 0,
          .rows = static_cast<int>(p.rows),
          .columns = columns,
          .group = ShortDivider::of(group),
          .blocks = ShortDivider::of(p.blocks),
          .batches = ShortDivider::of(map_batches(a, x, 0)),
          .ctas = static_cast<int>(p.batches * p.blocks),
          .parts = workspace + p.parts,
          .part = part,
          .padded = static_cast<int>(p.padded),
          .scales = workspace + p.scales,
          .status = reinterpret_cast<unsigned*>(workspace + p.status)};
}

/// Steps per (inner, outer) batch of the operand's own.
TileArguments::Steps steps_of(const Arguments& a, const Operand& x) {
  const auto inner = static_cast<int>(map_batches(a, x, 0));
  return {inner > 1, map_batches(a, x, 1) > 1 ? inner : 0};
}

bool make_keys_map(CUtensorMap& map, const SplitPlan& plan, const SplitPlan::Parts& p, const SplitOperand& x) {
  return make_tensor_map(map, {.data = x.parts,
                               .dtype = DType::f16,
                               .sizes = {p.padded, p.rows, p.batches, plan.parts},
                               .strides = {p.padded, p.rows * p.padded, x.part},
                               .box = {64, plan.rows.info().keys},
                               .swizzle_bytes = Tile::kBlockBytes,
                               .rank = 4});
}

}  // namespace

std::optional<SplitPlan> plan_fp16_split(const Arguments& a, int sm_count, int parts) {
  if (a.cap_scale != 0 || a.sinks.data != nullptr) return {};  // the kernel supports neither
  Problem problem = tile_problem(a);
  problem.table = split_tiles(parts), problem.sm_count = sm_count;
  // Scores times a scale beyond this could overflow where fp32's own would not.
  problem.possible = a.dtype == DType::f32 && a.key_group == 1 && a.value_group == 1 && a.batch_dims <= 2 && a.scale >= 0x1p-30 &&
                     a.scale <= 0x1p30;
  std::optional<Plan> rows = plan_tiles(problem);
  if (!rows) return {};
  // With three products per score, L2 misses cost little, and longest tiles first among all heads balance best. One product
  // needs keys and values at three times the rate, which memory does not reach: sections in L2, as in half precision.
  if (parts == 2) rows->section_heads = static_cast<int>(rows->tiles / rows->row_tiles);
  SplitPlan plan{.parts = parts, .rows = *rows, .query = {}, .key = {}, .value = {}, .failed = 0, .memory = 0, .bytes = 0};
  const std::int64_t query_rows = std::int64_t{a.sq} * a.group;
  const Tile& tile = rows->info();
  plan.query = place(plan, a, a.query, query_rows, a.d, 4 * tile.keys);
  plan.key = place(plan, a, a.key, a.sk, a.d, 2 * tile.keys);
  plan.value = place(plan, a, a.value, a.sk, a.dv, 2 * tile.value_size);
  std::int64_t blocks = 0;
  for (const SplitPlan::Parts* p : {&plan.query, &plan.key, &plan.value}) blocks += p->batches * p->blocks;
  if (query_rows > kMost || blocks > kMost) return {};
  plan.failed = plan.bytes;
  plan.memory = plan.failed + round_up(4 * std::int64_t{a.batches}, 128);
  plan.bytes = plan.memory + plan.rows.memory_bytes();
  return plan;
}

const unsigned* launch_fp16_split(const SplitPlan& plan, const Arguments& a, void* counters, void* workspace,
                                  cudaStream_t stream) {
  char* const base = static_cast<char*>(workspace);
  const SplitOperands operands{.query = operand(plan.query, a, a.query, a.d, a.group, base),
                               .key = operand(plan.key, a, a.key, a.d, 1, base),
                               .value = operand(plan.value, a, a.value, a.dv, 1, base)};
  SplitArguments g{};
  if (!make_keys_map(g.key, plan, plan.key, operands.key) || !make_keys_map(g.value, plan, plan.value, operands.value) ||
      !make_tensor_map(g.query, {.data = operands.query.parts,
                                 .dtype = DType::f16,
                                 .sizes = {plan.query.padded, a.group, a.sq, plan.query.batches, plan.parts},
                                 .strides = {plan.query.padded, a.group * plan.query.padded, plan.query.rows * plan.query.padded,
                                             operands.query.part},
                                 .box = {64, plan.rows.packed, plan.rows.tile_rows / plan.rows.packed},
                                 .swizzle_bytes = Tile::kBlockBytes,
                                 .rank = 5}))
    return nullptr;
  g.query_steps = steps_of(a, a.query), g.key_steps = steps_of(a, a.key), g.value_steps = steps_of(a, a.value);
  g.query_scales = static_cast<const float*>(operands.query.scales);
  g.key_scales = static_cast<const std::uint16_t*>(operands.key.scales);
  g.value_scales = static_cast<const std::uint16_t*>(operands.value.scales);
  g.query_status = operands.query.status, g.key_status = operands.key.status, g.value_status = operands.value.status;
  g.query_blocks = static_cast<int>(plan.query.blocks), g.key_tiles = static_cast<int>(plan.key.blocks);
  g.batches = static_cast<int>(a.batches);
  g.failed = reinterpret_cast<unsigned*>(base + plan.failed);
  g.correction = 1.f + 0x1p-23f;

  (plan.parts == 2 ? split_fp16x3 : split_fp16x1)(plan.tile(), operands, stream);
  fill_arguments(g, plan.rows, a, counters, base + plan.memory, stream);
  (plan.parts == 2 ? launch_fp16x3 : launch_fp16x1)(plan.tile(), plan.rows.masking, g, plan.rows.ctas, stream);
  if (plan.rows.through_memory) launch_split_merge(plan.rows.masking == Masking::additive, g, plan.rows.merged_rows(), stream);
  return g.failed;
}

}  // namespace xgemm::attention
