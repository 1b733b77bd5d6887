#include "attention/fp16_split/launch.h"

#include "attention/tiles/problem.h"
#include "device/integer.h"
#include "device/tensor_map.h"

namespace xgemm::attention {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 30;  ///< most rows, and most blocks of rows, of one launch of split.cuh

std::int64_t own_batches(const Arguments& a, const Operand& x) { return map_batches(a, x, 0) * map_batches(a, x, 1); }

/// Memory of a call: pointers that are offsets where `workspace` is 0.
struct SplitMemory {
  std::uintptr_t workspace;
  SplitOperands operands = {};
  unsigned* failed = nullptr;
  void* partials = nullptr;  ///< of the attention kernel
  std::int64_t bytes = 0;

  void* take(std::int64_t size) {
    void* const at = reinterpret_cast<void*>(workspace + static_cast<std::uintptr_t>(bytes));
    bytes += round_up(size, 128);
    return at;
  }
  /// An operand's parts, scales and status, in blocks of so many rows, with scales of `scale_bytes` each.
  SplitOperand operand(const SplitPlan& plan, const Arguments& a, const Operand& x, std::int64_t rows, int columns, int group,
                       int block, std::int64_t scale_bytes) {
    const std::int64_t batches = own_batches(a, x), blocks = ceil_div(rows, block), padded = round_up(columns, 8),
                       part = batches * rows * padded;
    return {.data = static_cast<const float*>(x.data),
            .row = x.row,
            .column = x.column,
            .head = x.group,
            .inner = batch_stride(a, x, 0),
            .outer = batch_stride(a, x, 1),
            .vector = x.vector && columns % 4 == 0,
            .rows = static_cast<int>(rows),
            .columns = columns,
            .group = ShortDivider::of(group),
            .blocks = ShortDivider::of(blocks),
            .batches = ShortDivider::of(map_batches(a, x, 0)),
            .ctas = static_cast<int>(batches * blocks),
            .parts = take(2 * plan.parts * part),
            .part = part,
            .padded = static_cast<int>(padded),
            .scales = take(batches * blocks * scale_bytes),
            .status = static_cast<unsigned*>(take(4 * batches * blocks))};
  }
  SplitMemory(const SplitPlan& plan, const Arguments& a, void* memory) : workspace(reinterpret_cast<std::uintptr_t>(memory)) {
    const Tile& tile = plan.rows.info();
    const int block = split_block_rows(tile.head_size);
    operands.query = operand(plan, a, a.query, std::int64_t{a.sq} * a.group, a.d, a.group, block, 4 * block);
    operands.key = operand(plan, a, a.key, a.sk, a.d, 1, block, 2 * block);
    operands.value = operand(plan, a, a.value, a.sk, a.dv, 1, block, 2 * tile.value_size);
    failed = static_cast<unsigned*>(take(4 * std::int64_t{a.batches}));
    partials = take(plan.rows.memory_bytes());
  }
};

/// Steps per (inner, outer) batch of the operand's own.
TileArguments::Steps steps_of(const Arguments& a, const Operand& x) {
  const auto inner = static_cast<int>(map_batches(a, x, 0));
  return {inner > 1, map_batches(a, x, 1) > 1 ? inner : 0};
}

bool make_keys_map(CUtensorMap& map, const SplitPlan& plan, std::int64_t batches, const SplitOperand& x) {
  return make_tensor_map(map, {.data = x.parts,
                               .dtype = DType::f16,
                               .sizes = {x.padded, x.rows, batches, plan.parts},
                               .strides = {x.padded, std::int64_t{x.rows} * x.padded, x.part},
                               .box = {64, plan.rows.info().keys},
                               .swizzle_bytes = Tile::kBlockBytes,
                               .rank = 4});
}

/// The plan for tile_problem() with the table of a kernel.
std::optional<SplitPlan> plan_of(const Arguments& a, Problem problem, int sm_count, int parts) {
  if (a.cap_scale != 0 || a.sinks.data != nullptr) return {};  // the kernels support neither
  problem.sm_count = sm_count;
  // Scores times a scale beyond this could overflow where fp32's own would not.
  problem.possible = a.dtype == DType::f32 && a.key_group == 1 && a.value_group == 1 && a.batch_dims <= 2 && a.scale >= 0x1p-30 &&
                     a.scale <= 0x1p30;
  std::optional<Plan> rows = plan_tiles(problem);
  if (!rows) return {};
  // With three products per score, L2 misses cost little, and longest tiles first among all heads balance best. One product
  // needs keys and values at three times the rate, which memory does not reach: sections in L2, as in half precision.
  // mma.sync's tiles of half as many rows read keys twice as often: without a causal limit head by head, so that L2 has them.
  if (parts == 2 && (problem.causal || !problem.portable)) rows->section_heads = static_cast<int>(rows->tiles / rows->row_tiles);
  const std::int64_t query_rows = std::int64_t{a.sq} * a.group, block = split_block_rows(rows->info().head_size);
  const std::int64_t blocks = own_batches(a, a.query) * ceil_div(query_rows, block) +
                              (own_batches(a, a.key) + own_batches(a, a.value)) * ceil_div(a.sk, block);
  if (query_rows > kMost || blocks > kMost) return {};
  SplitPlan plan{.parts = parts, .portable = problem.portable, .rows = *rows};
  plan.bytes = SplitMemory(plan, a, nullptr).bytes;
  return plan;
}

/// What both kernels read.
void fill_split_arguments(SplitArguments& g, const Arguments& a, const SplitMemory& memory) {
  const SplitOperand &query = memory.operands.query, &key = memory.operands.key, &value = memory.operands.value;
  g.query_steps = steps_of(a, a.query), g.key_steps = steps_of(a, a.key), g.value_steps = steps_of(a, a.value);
  g.query_scales = static_cast<const float*>(query.scales);
  g.key_scales = static_cast<const std::uint16_t*>(key.scales), g.value_scales = static_cast<const std::uint16_t*>(value.scales);
  g.query_status = query.status, g.key_status = key.status, g.value_status = value.status;
  g.query_blocks = static_cast<int>(query.blocks.divisor), g.key_blocks = static_cast<int>(key.blocks.divisor);
  g.batches = static_cast<int>(a.batches), g.failed = memory.failed;
  g.correction = 1.f + 0x1p-23f;
}

/// The high parts, as mma_kernel.cu reads them.
MmaArguments::Operand high_parts(const SplitOperand& x, const TileArguments::Steps& steps, int group) {
  const std::int64_t batch = std::int64_t{x.rows} * x.padded, row = std::int64_t{group} * x.padded;
  return {x.parts, steps.outer * batch, steps.inner * batch, x.padded, row, 0, 0, false};
}

bool set_maps(SplitArguments& g, const SplitPlan& plan, const Arguments& a, const SplitOperands& parts) {
  const SplitOperand& query = parts.query;
  return make_keys_map(g.key, plan, own_batches(a, a.key), parts.key) &&
         make_keys_map(g.value, plan, own_batches(a, a.value), parts.value) &&
         make_tensor_map(g.query, {.data = query.parts,
                                   .dtype = DType::f16,
                                   .sizes = {query.padded, a.group, a.sq, own_batches(a, a.query), plan.parts},
                                   .strides = {query.padded, std::int64_t{a.group} * query.padded,
                                               std::int64_t{query.rows} * query.padded, query.part},
                                   .box = {64, plan.rows.packed, plan.rows.tile_rows / plan.rows.packed},
                                   .swizzle_bytes = Tile::kBlockBytes,
                                   .rank = 5});
}

}  // namespace

std::optional<SplitPlan> plan_fp16_split(const Arguments& a, int sm_count, int parts) {
  Problem problem = tile_problem(a);
  problem.table = split_tiles(parts);
  return plan_of(a, problem, sm_count, parts);
}

std::optional<SplitPlan> plan_split_mma(const Arguments& a, int sm_count) {
  Problem problem = tile_problem(a);
  problem.table = kSplitMmaTiles, problem.portable = true;
  return plan_of(a, problem, sm_count, 2);
}

const unsigned* launch_fp16_split(const SplitPlan& plan, const Arguments& a, void* workspace, cudaStream_t stream) {
  const SplitMemory memory(plan, a, workspace);
  const SplitOperands& parts = memory.operands;
  SplitMmaArguments g{};
  fill_split_arguments(g, a, memory);
  if (plan.portable) {
    g.queries = high_parts(parts.query, g.query_steps, a.group), g.query_part = 2 * parts.query.part;
    g.keys = high_parts(parts.key, g.key_steps, 1), g.key_part = 2 * parts.key.part;
    g.values = high_parts(parts.value, g.value_steps, 1), g.value_part = 2 * parts.value.part;
    g.columns = parts.key.padded, g.value_columns = parts.value.padded;
  } else if (!set_maps(g, plan, a, parts)) {
    return nullptr;
  }
  const Tile& like = *std::ranges::find(split_tiles(plan.parts), plan.rows.info().head_size, &Tile::head_size);
  launch_split_operands(static_cast<int>(&like - kSplitTiles.data()), parts, stream);
  fill_arguments(g, plan.rows, a, memory.partials, stream);
  const bool masked = has_mask(plan.rows.masking);
  if (plan.portable)
    launch_split_mma(plan.tile(), masked, g, static_cast<unsigned>(plan.rows.ctas), stream);
  else
    launch_split_tile(plan.tile(), plan.rows.masking, g, plan.rows.ctas, stream);
  const bool natural_units = plan.portable ? masked : plan.rows.masking == Masking::additive;
  if (plan.rows.through_memory) launch_split_merge(natural_units, g, plan.rows.merged_rows(), stream);
  return g.failed;
}

}  // namespace xgemm::attention
