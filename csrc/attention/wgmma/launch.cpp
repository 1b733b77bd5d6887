#include "attention/wgmma/launch.h"

#include <cstdlib>

#include "attention/wgmma/instances.h"
#include "device/integer.h"
#include "device/tensor_map.h"

namespace xgemm::attention {
namespace {

/// The batch dims of `Arguments`, at most two of them, from the inside.
struct Batches {
  std::int64_t inner = 1, outer = 1;
  explicit Batches(const Arguments& a) {
    if (a.batch_dims > 0) inner = a.batch_sizes[a.batch_dims - 1];
    if (a.batch_dims > 1) outer = a.batch_sizes[a.batch_dims - 2];
  }
  static std::int64_t stride(const Arguments& a, const Operand& x, int dim) {
    return a.batch_dims > dim ? x.batch[a.batch_dims - 1 - dim] : 0;
  }
};

/// The size of a map's batch dim and the step through it: an operand that all batches share has one.
std::int64_t map_size(std::int64_t batches, std::int64_t stride) { return stride == 0 ? 1 : batches; }

/// Strides of a map are positive and under 2^40 bytes.
bool walkable(std::int64_t size, std::int64_t stride) { return size <= 1 || (stride > 0 && stride < std::int64_t{1} << 39); }

}  // namespace

bool serves_wgmma(const Arguments& a) {
  if (a.dtype != DType::f16 && a.dtype != DType::bf16) return false;
  if (a.masked || a.key_group != 1 || a.value_group != 1 || a.batch_dims > 2) return false;
  if (!(static_cast<float>(a.scale) > 0) || a.dv % 8 != 0) return false;
  if (!a.query.vector || !a.key.vector || !a.value.vector) return false;
  const Batches batches(a);
  bool walks =
      walkable(a.sq, a.query.row) && walkable(a.group, a.query.group) && walkable(a.sk, a.key.row) && walkable(a.sk, a.value.row);
  for (const Operand* x : {&a.query, &a.key, &a.value})
    for (int dim : {0, 1}) {
      const std::int64_t stride = Batches::stride(a, *x, dim);
      walks = walks && walkable(map_size(dim == 0 ? batches.inner : batches.outer, stride), stride);
    }
  return walks;
}

bool launch_wgmma(const WgmmaPlan& plan, const Arguments& a, void* counters, void* partials, cudaStream_t stream) {
  const WgmmaTile& tile = plan.info();
  const Batches batches(a);
  WgmmaArguments g{};
  bool made = true;

  // Rows of queries and outputs: `packed` heads by box positions.
  const auto rows_map = [&](CUtensorMap& map, const void* data, int columns, std::int64_t group, std::int64_t row,
                            std::int64_t inner, std::int64_t outer, int rows) {
    made = made && make_tensor_map(
                       map, {.data = data,
                             .dtype = a.dtype,
                             .sizes = {columns, a.group, a.sq, map_size(batches.inner, inner), map_size(batches.outer, outer)},
                             .strides = {group, row, inner, outer},
                             .box = {64, plan.packed, rows / plan.packed},
                             .swizzle_bytes = WgmmaTile::kBlockBytes,
                             .rank = 5});
  };
  const auto keys_map = [&](CUtensorMap& map, WgmmaArguments::Steps& steps, const Operand& x, int columns) {
    const std::int64_t inner = Batches::stride(a, x, 0), outer = Batches::stride(a, x, 1);
    steps = {inner != 0, outer != 0};
    made = made && make_tensor_map(map, {.data = x.data,
                                         .dtype = a.dtype,
                                         .sizes = {columns, a.sk, map_size(batches.inner, inner), map_size(batches.outer, outer)},
                                         .strides = {x.row, inner, outer},
                                         .box = {64, tile.keys},
                                         .swizzle_bytes = WgmmaTile::kBlockBytes,
                                         .rank = 4});
  };
  const std::int64_t inner = Batches::stride(a, a.query, 0), outer = Batches::stride(a, a.query, 1);
  rows_map(g.query, a.query.data, a.d, a.query.group, a.query.row, inner, outer, plan.tile_rows);
  g.query_steps = {inner != 0, outer != 0};
  keys_map(g.key, g.key_steps, a.key, a.d);
  keys_map(g.value, g.value_steps, a.value, a.dv);
  const std::int64_t head = std::int64_t{a.sq} * a.dv;
  if (!plan.through_memory) rows_map(g.output, a.output, a.dv, head, a.dv, a.group * head, batches.inner * a.group * head, 16);
  if (!made) return false;

  g.lse = static_cast<float*>(a.lse);
  g.sq = a.sq, g.sk = a.sk;
  g.first = -a.sq, g.last = a.causal ? static_cast<int>(a.shift) + 1 : a.sk;
  g.scale = static_cast<float>(a.scale), g.scale_log2 = static_cast<float>(a.scale * 1.4426950408889634);
  g.items = static_cast<int>(plan.items()), g.row_tiles = plan.row_tiles, g.tile_rows = plan.tile_rows;
  g.pack = ShortDivider::of(plan.packed);
  g.section = ShortDivider::of(std::int64_t{plan.row_tiles} * plan.section_heads);
  g.section_heads = ShortDivider::of(plan.section_heads);
  g.tile_heads = ShortDivider::of(a.group / plan.packed);
  g.inner = ShortDivider::of(batches.inner);
  g.parts = ShortDivider::of(plan.parts);
  g.part_tiles = plan.part_tiles, g.part_rows = plan.part_rows, g.through_memory = plan.through_memory;
  g.part_states = static_cast<float2*>(partials);
  g.part_outputs = reinterpret_cast<float*>(static_cast<char*>(partials) + plan.state_bytes());
  g.counters = static_cast<unsigned*>(counters);
  g.out = a.output, g.dv = a.dv;
  (a.dtype == DType::f16 ? launch_wgmma_half : launch_wgmma_bf16)(plan.tile, g, plan.ctas, stream);
  return true;
}

}  // namespace xgemm::attention
