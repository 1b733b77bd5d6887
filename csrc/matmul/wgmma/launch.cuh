// Host side of wgmma/kernel.cuh: tensor maps, grid, choice of instantiation.
#pragma once
#include <algorithm>
#include <bit>

#include "device/launch.h"
#include "matmul/dispatch.h"
#include "matmul/operand_map.h"
#include "matmul/wgmma/kernel.cuh"
#include "matmul/wgmma/launch.h"

namespace xgemm::matmul {

/// Chooses how C is stored (epilogue/store_tile.cuh). Needs g.problem and g.tiles.width.
inline void choose_store(WgmmaArguments& g, const WgmmaConfig& config, const WgmmaPlan& plan) {
  const Problem& p = g.problem;
  const int out_bytes = static_cast<int>(size_of(p.dtype)), box_bytes = config.box_c();
  const bool activates = is_half(p.dtype);  // kActivatesBoxes
  const bool whole_boxes = config.columns() * out_bytes >= box_bytes && (!config.gated || box_bytes == 128);
  const bool whole = plan.cluster == 1 && plan.memory_splits == 1, plain = whole && !p.c.data && !p.residual.data;
  // Can a lane read this operand two elements at a time?
  const auto paired = [&](const Operand& x) {
    return !x.data || (activates && !config.gated && p.batches == 1 && x.col_stride == 1 && x.row_stride % 2 == 0 &&
                       reinterpret_cast<std::uintptr_t>(x.data) % static_cast<unsigned>(2 * out_bytes) == 0);
  };
  const auto map_out = [&](std::int64_t columns, std::int64_t rows, int bytes) {  // of C; bytes of a box's row
    return make_tensor_map(g.out, {.data = p.out,
                                   .dtype = p.dtype,
                                   .sizes = {columns, rows, p.batches},
                                   .strides = {columns, rows * columns},
                                   .box = {bytes / out_bytes, 16},
                                   .swizzle_bytes = bytes});
  };
  if ((g.swapped = plan.swapped)) {
    g.boxes = map_out(p.m, p.n, 128);
    return;
  }
  g.direct = config.may_store_direct() && plain && p.activation == Activation::none && p.n % 2 == 0 &&
             g.tiles.width * out_bytes % box_bytes != 0;
  const bool may_box = whole && whole_boxes && !g.direct && (activates || p.activation == Activation::none);
  g.boxes = may_box && paired(p.c) && paired(p.residual) && g.tiles.width * out_bytes % box_bytes == 0 &&
            tensor_map_possible(p.out, p.dtype, p.n, p.m * p.n) && map_out(p.n, p.m, box_bytes);
  if (!g.boxes && may_box && plain && !config.gated && config.tile_n >= 64 &&
      (box_bytes == 128 || p.activation == Activation::none))
    g.boxes = g.ragged = true;
}

/// Fills the kernel's arguments. Returns the number of CTAs; 0: the driver rejected a tensor map.
inline unsigned describe(WgmmaArguments& g, const WgmmaConfig& config, const WgmmaLaunch& launch) {
  const Problem& p = launch.problem;
  const WgmmaPlan& plan = launch.plan;
  const auto lines_of = [&](const TensorOperand& x) {
    return reinterpret_cast<const LineStats*>(memory_of(x, p, launch.workspace) + x.stats);
  };
  g.problem = p;
  g.batch_step_a = plan.a.batch_step, g.batch_step_b = plan.b.batch_step;
  g.k.chunk_blocks = static_cast<int>(plan.chunk / kWgmmaTileK),
  g.k.split_blocks = static_cast<int>(plan.split_length / kWgmmaTileK);
  g.k.splits = static_cast<int>(plan.splits), g.k.cluster_splits = static_cast<int>(plan.cluster);
  g.tiles.rows = static_cast<int>(ceil_div(p.m, config.tile_m)), g.tiles.width = static_cast<int>(plan.columns);
  g.tiles.columns = static_cast<int>(ceil_div(p.n, plan.columns));
  if (plan.multicast) g.tiles.rows = (g.tiles.rows + 1) / 2;
  g.tiles.count = static_cast<int>(g.tiles.rows * g.tiles.columns * p.batches);
  g.tiles.last_row = last_tile(plan.a.k_major, p.m, config.tile_m);
  // Boxes of C must begin at multiples of 16 bytes.
  g.tiles.last_column = last_tile(plan.b.k_major && (plan.swapped || p.n % 8 == 0), p.n, plan.columns);
  g.memory_splits = static_cast<int>(plan.memory_splits);
  g.k.blocks = static_cast<int>(ceil_div(p.k, kWgmmaTileK));
  g.schedule.per_batch = ShortDivider::of(std::int64_t{g.tiles.rows} * g.tiles.columns),
  g.schedule.per_group = ShortDivider::of(std::int64_t{config.group} * g.tiles.columns);
  g.schedule.last_rows = ShortDivider::of((g.tiles.rows - 1) % config.group + 1);
  g.alpha = static_cast<float>(p.alpha);
  g.meetings = static_cast<Meeting*>(launch.counters);
  g.partials = launch.partials;
  g.lines_a = lines_of(plan.a);
  g.lines_b = lines_of(plan.b);
  const auto operand_map = [&](CUtensorMap& map, const TensorOperand& x, const Operand& operand, int box) {
    return make_operand_map(map, p, operand, x, launch.workspace, is_half(p.dtype) ? p.dtype : DType::f16, 64, box, config.parts);
  };
  // A's box ends with the last row of A, rounded up to 8. Stale shared memory below it affects only sums that are not stored.
  const int box_a =
      config.k_major_a ? static_cast<int>(std::min<std::int64_t>(config.box_a(), round_up(p.m, 8))) : config.box_a();
  int box_b = config.k_major_b && !config.gated ? g.tiles.width : config.box_b();
  const int lines_a = config.k_major_a ? box_a : config.tile_m;
  const int width = config.k_major_b ? box_b : static_cast<int>(round_up(g.tiles.width, 64)),
            lines_b = config.gated ? config.tile_n : width;
  g.slot_bytes = config.blocks * config.parts * config.kRowBytes * (lines_a + lines_b);
  if (plan.multicast) g.tiles.multicast = box_b /= 2;
  if (!operand_map(g.a, plan.a, p.a, box_a) || !operand_map(g.b, plan.b, p.b, box_b)) return 0;
  if (config.gated) {
    if (!operand_map(g.gate.up, plan.up, p.up, box_b)) return 0;
    g.gate.lines_up = lines_of(plan.up);
    g.gate.bias_gate = p.bias, g.gate.bias_up = p.bias_up, g.gate.activation = p.activation;
    g.problem.bias = {}, g.problem.activation = Activation::none;  // applied before the results are stored
  }
  if (config.may_fall_back()) g.fallback = launch.failed;
  if (p.m <= config.tile_m && plan.b.k_major && !plan.b.copied && p.batches == 1) {
    constexpr int kPrefetch = 1024;  // bytes; more would delay the first loads
    g.prefetch.b = static_cast<const char*>(p.b.data), g.prefetch.step = 2 * plan.b.ld, g.prefetch.bytes = kPrefetch;
  }
  choose_store(g, config, plan);
  if (plan.swapped && !g.boxes) return 0;
  g.fills_bias = config.fills_bias() && g.boxes && p.bias.data;

  const auto cluster = static_cast<unsigned>(plan.multicast ? 2 : plan.cluster);
  const auto clusters =
      static_cast<unsigned>(std::min<std::int64_t>(g.tiles.count * plan.memory_splits, launch.sm_count / cluster));
  g.schedule.items = static_cast<int>(g.tiles.count * plan.memory_splits), g.schedule.shift = std::countr_zero(cluster);
  g.schedule.at_a_time = ShortDivider::of(clusters);
  return clusters * cluster;
}

template <class Element, WgmmaTile kTile, int kParts, bool kKMajorA, bool kKMajorB, bool kGated = false>
bool launch_wgmma(const WgmmaLaunch& launch) {
  constexpr WgmmaConfig kConfig = wgmma_config(kTile, kParts, kKMajorA, kKMajorB, kGated);
  constexpr auto kFunction = wgmma_gemm<Element, kTile, kParts, kKMajorA, kKMajorB, kGated>;
  WgmmaArguments g{};
  const unsigned ctas = describe(g, kConfig, launch);
  const int cluster = launch.plan.multicast ? 2 : static_cast<int>(launch.plan.cluster);
  return ctas > 0 &&
         enqueue_with_shared<kFunction, kConfig.shared_bytes()>(early_grid(ctas, kConfig.threads(), cluster), launch.stream, g);
}

/// Picks the instantiation for the operands' layouts.
template <class Element, WgmmaTile kTile, int kParts>
bool launch_layout(const WgmmaLaunch& launch) {
  bool launched = false;
  dispatch_flags(launch.plan.a.k_major, launch.plan.b.k_major, [&]<bool kKMajorA, bool kKMajorB>() {
    if constexpr (kKMajorB || info(kTile).n % 64 == 0)
      launched = launch_wgmma<Element, kTile, kParts, kKMajorA, kKMajorB>(launch);
  });
  return launched;
}

/// Half-precision operands and result.
template <class T>
bool launch_half_type(const WgmmaLaunch& launch) {
  bool launched = false;
  dispatch_tile<kWgmmaTiles.size()>(launch.plan.tile, [&]<WgmmaTile kTile>() { launched = launch_layout<T, kTile, 0>(launch); });
  return launched;
}

}  // namespace xgemm::matmul
