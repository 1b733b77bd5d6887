// Host side of wgmma/kernel.cuh: tensor maps, grid, choice of instantiation.
#pragma once
#include <algorithm>
#include <bit>
#include <climits>

#include "device/launch.h"
#include "device/tensor_map.h"
#include "matmul/dispatch.h"
#include "matmul/wgmma/kernel.cuh"
#include "matmul/wgmma/launch.h"

namespace xgemm::matmul {

/// The instantiations of one kind of operands. Slots fill shared memory beside the staging of C. Groups keep the operands of a
/// wave of 132 tiles in L2: 16 rows of tiles by 8 wide ones, 12 by 11 narrower ones.
template <WgmmaTile kTile, int kParts, bool kScaled, bool kKMajorA, bool kKMajorB, bool kGated = false>
struct WgmmaInstance {
  static constexpr int kBlocks = kParts == 1 ? info(kTile).blocks : 1;
  static constexpr int kSlots = (info(kTile).m == 64 ? 208 : 192) * 1024;
  static constexpr int kSlotBytes = kBlocks * kParts * (info(kTile).m + info(kTile).n) * 128;
  static constexpr WgmmaConfig kValue{.tile_m = info(kTile).m,
                                      .tile_n = info(kTile).n,
                                      .blocks = kBlocks,
                                      .stages = std::min(8, kSlots / kSlotBytes),
                                      .k_major_a = kKMajorA,
                                      .k_major_b = kKMajorB,
                                      .group = info(kTile).n == 256 ? 16 : 12,
                                      .parts = kParts,
                                      .scaled = kScaled,
                                      .gated = kGated,
                                      .swap_ab = info(kTile).swap_ab};
};

/// How C leaves (epilogue/store_tile.cuh); `g` has its problem and tile_columns.
template <class Out, class Config>
void choose_store(WgmmaArguments& g, const WgmmaPlan& plan) {
  constexpr WgmmaConfig kConfig = Config::kValue;
  const Problem& p = g.problem;
  constexpr int kBoxBytes = WgmmaBoxes<Config>::kBoxC;
  constexpr bool kWholeBoxes = kConfig.columns() * sizeof(Out) >= kBoxBytes && (!kConfig.gated || kBoxBytes == 128);
  if constexpr (kConfig.swap_ab) {  // a box a warpgroup's 64 columns by eight rows; rows are p.n, columns p.m
    g.boxes = tensor_map_possible(p.out, p.dtype, p.m, p.m * p.n) && make_tensor_map(g.out, {.data = p.out,
                                                                                             .dtype = p.dtype,
                                                                                             .sizes = {p.m, p.n, p.batches},
                                                                                             .strides = {p.m, p.m * p.n},
                                                                                             .box = {64, 8},
                                                                                             .swizzle_bytes = 128});
    return;
  }
  const bool whole = plan.cluster == 1 && plan.memory_splits == 1, plain = whole && !p.c.data && !p.residual.data;
  // Does a lane find its sums' neighbours in pairs?
  const auto paired = [&](const Operand& x) {
    return !x.data || (wgmma_detail::kActivatesBoxes<Out> && !kConfig.gated && p.batches == 1 && x.col_stride == 1 &&
                       x.row_stride % 2 == 0 && reinterpret_cast<std::uintptr_t>(x.data) % (2 * sizeof(Out)) == 0);
  };
  g.direct = kConfig.may_store_direct() && plain && p.activation == Activation::none && p.n % 2 == 0 &&
             g.tiles.width * sizeof(Out) % kBoxBytes != 0;
  const bool may_box =
      whole && kWholeBoxes && !g.direct && (wgmma_detail::kActivatesBoxes<Out> || p.activation == Activation::none);
  g.boxes = may_box && paired(p.c) && paired(p.residual) && g.tiles.width * sizeof(Out) % kBoxBytes == 0 &&
            tensor_map_possible(p.out, p.dtype, p.n, p.m * p.n) &&
            make_tensor_map(g.out, {.data = p.out,
                                    .dtype = p.dtype,
                                    .sizes = {p.n, p.m, p.batches},
                                    .strides = {p.n, p.m * p.n},
                                    .box = {kBoxBytes / static_cast<int>(sizeof(Out)), 16},
                                    .swizzle_bytes = kBoxBytes});
  if (!g.boxes && may_box && plain && sizeof(Out) == 2 && !kConfig.gated && kConfig.tile_n >= 64 &&
      (kBoxBytes == 128 || p.activation == Activation::none))
    g.boxes = g.ragged = true;
}

template <class Element, class Out, class Config>
bool launch_wgmma(const WgmmaLaunch& launch) {
  constexpr WgmmaConfig kConfig = Config::kValue;
  using Boxes = WgmmaBoxes<Config>;
  const Problem& p = launch.problem;
  const WgmmaPlan& plan = launch.plan;
  const auto lines_of = [&](const TensorOperand& x) {
    return reinterpret_cast<const LineStats*>(memory_of(x, p, launch.workspace) + x.stats);
  };
  WgmmaArguments g{};
  g.problem = p;
  g.batch_step_a = plan.a.batch_step, g.batch_step_b = plan.b.batch_step;
  g.k.chunk_blocks = static_cast<int>(plan.chunk / kWgmmaTileK),
  g.k.split_blocks = static_cast<int>(plan.split_length / kWgmmaTileK);
  g.k.splits = static_cast<int>(plan.splits), g.k.cluster_splits = static_cast<int>(plan.cluster);
  g.tiles.rows = static_cast<int>((p.m + kConfig.tile_m - 1) / kConfig.tile_m), g.tiles.width = static_cast<int>(plan.columns);
  g.tiles.columns = static_cast<int>((p.n + plan.columns - 1) / plan.columns);
  if (plan.multicast)
    (kConfig.multicasts_a() ? g.tiles.columns : g.tiles.rows) =
        ((kConfig.multicasts_a() ? g.tiles.columns : g.tiles.rows) + 1) / 2;
  g.tiles.count = static_cast<int>(g.tiles.rows * g.tiles.columns * p.batches);
  const auto last = [](bool overlap, std::int64_t lines, std::int64_t tile) {
    return overlap && lines >= tile ? static_cast<int>(lines - tile) : INT_MAX;
  };
  g.tiles.last_row = last(plan.a.k_major, p.m, kConfig.tile_m);
  g.tiles.last_column =
      last(plan.b.k_major && (kConfig.swap_ab || p.n % 8 == 0), p.n, plan.columns);  // boxes of C begin at multiples of 16 bytes
  g.memory_splits = static_cast<int>(plan.memory_splits);
  g.k.blocks = static_cast<int>((p.k + kWgmmaTileK - 1) / kWgmmaTileK);
  g.schedule.per_batch = ShortDivider::of(std::int64_t{g.tiles.rows} * g.tiles.columns),
  g.schedule.per_group = ShortDivider::of(std::int64_t{kConfig.group} * g.tiles.columns);
  g.schedule.last_rows = ShortDivider::of((g.tiles.rows - 1) % kConfig.group + 1);
  g.alpha = static_cast<float>(p.alpha);
  g.meetings = static_cast<Meeting*>(launch.counters);
  g.partials = launch.partials;
  g.lines_a = lines_of(plan.a);
  g.lines_b = lines_of(plan.b);
  const auto operand_map = [&](CUtensorMap& map, const TensorOperand& x, const void* data, int box0, int box1) {
    return make_tensor_map(map, {.data = x.copied ? memory_of(x, p, launch.workspace) + x.copy : data,
                                 .dtype = std::is_same_v<Element, half> ? DType::f16 : DType::bf16,
                                 .sizes = {x.inner, x.other, x.batches * kConfig.parts},
                                 .strides = {x.ld, x.plane},
                                 .box = {box0, box1},
                                 .swizzle_bytes = 128});
  };
  // Rows that no row of A will fill are not asked for: what is left in shared memory there goes to sums that nobody stores.
  const int rows_a =
      kConfig.k_major_a ? static_cast<int>(std::min<std::int64_t>(Boxes::kBoxA[1], (p.m + 7) / 8 * 8)) : Boxes::kBoxA[1];
  const int bytes_a = kConfig.k_major_a ? rows_a * Boxes::kRowBytes : Boxes::kBytesA;
  const int columns_b = kConfig.k_major_b && !kConfig.gated ? g.tiles.width : Boxes::kBoxB[1];
  const int bytes_b = kConfig.k_major_b && !kConfig.gated ? columns_b * Boxes::kRowBytes : Boxes::kBytesB;
  g.slots.bytes = kConfig.blocks * kConfig.parts * (bytes_a + bytes_b);
  g.slots.wgmma_n = wgmma_width(plan.columns), g.slots.stage_bytes = Boxes::kBytesA + g.slots.wgmma_n * Boxes::kRowBytes;
  g.slots.stages = std::min(kConfig.most_stages(), Boxes::kSlotsBytes / g.slots.stage_bytes);
  int box_a = rows_a, box_b = columns_b;
  if (plan.multicast) g.tiles.multicast = (kConfig.multicasts_a() ? box_a : box_b) /= 2;
  if (!operand_map(g.a, plan.a, p.a.data, Boxes::kBoxA[0], box_a) || !operand_map(g.b, plan.b, p.b.data, Boxes::kBoxB[0], box_b))
    return false;
  if constexpr (kConfig.gated) {
    if (!operand_map(g.gate.up, plan.up, p.up.data, Boxes::kBoxB[0], Boxes::kBoxB[1])) return false;
    g.gate.lines_up = lines_of(plan.up);
    g.gate.bias_gate = p.bias, g.gate.bias_up = p.bias_up, g.gate.activation = p.activation;
    g.problem.bias = {}, g.problem.activation = Activation::none;  // done by the time that results are stored
  }
  if (kConfig.may_fall_back()) g.fallback = launch.failed;
  if (!kConfig.swap_ab && p.m <= kConfig.tile_m && plan.b.k_major && !plan.b.copied && p.batches == 1) {
    constexpr int kPrefetch = 1024;  // more takes the memory from the first loads
    g.prefetch.b = static_cast<const char*>(p.b.data), g.prefetch.step = 2 * plan.b.ld, g.prefetch.bytes = kPrefetch;
  }
  choose_store<Out, Config>(g, plan);
  g.fills_bias = kConfig.fills_bias() && (g.boxes || kConfig.swap_ab) && p.bias.data;

  constexpr auto kKernel = wgmma_gemm<Element, Out, Config>;
  if (!allow_shared<kKernel, Boxes::kSharedBytes>()) return false;
  const auto cluster = static_cast<unsigned>(plan.multicast ? 2 : plan.cluster);
  const auto clusters =
      static_cast<unsigned>(std::min<std::int64_t>(g.tiles.count * plan.memory_splits, launch.sm_count / cluster));
  g.schedule.items = static_cast<int>(g.tiles.count * plan.memory_splits), g.schedule.shift = std::countr_zero(cluster);
  g.schedule.at_a_time = ShortDivider::of(clusters);
  const Grid grid{.blocks = dim3(clusters * cluster),
                  .threads = dim3(kConfig.threads()),
                  .shared_bytes = Boxes::kSharedBytes,
                  .cluster = cluster,
                  .early = true};
  enqueue(kKernel, grid, launch.stream, g);
  return true;
}

/// Picks the instantiation for the operands' layouts.
template <class Element, class Out, WgmmaTile kTile, int kParts, bool kScaled>
bool launch_layout(const WgmmaLaunch& launch) {
  const bool a = launch.plan.a.k_major, b = launch.plan.b.k_major;
  if (b)
    return a ? launch_wgmma<Element, Out, WgmmaInstance<kTile, kParts, kScaled, true, true>>(launch)
             : launch_wgmma<Element, Out, WgmmaInstance<kTile, kParts, kScaled, false, true>>(launch);
  if constexpr (info(kTile).n % 64 == 0 && kTile != WgmmaTile::t64x256)
    return a ? launch_wgmma<Element, Out, WgmmaInstance<kTile, kParts, kScaled, true, false>>(launch)
             : launch_wgmma<Element, Out, WgmmaInstance<kTile, kParts, kScaled, false, false>>(launch);
  return false;
}

/// The kernel's problem is out^T = B^T A^T.
template <class T, WgmmaTile kTile>
bool launch_swapped(const WgmmaLaunch& launch) {
  const Problem problem = swap_ab(launch.problem);
  WgmmaPlan plan = launch.plan;
  std::swap(plan.a, plan.b);
  const WgmmaLaunch swapped{problem, plan, launch.workspace, launch.counters, launch.partials, launch.sm_count, launch.stream};
  if (!plan.b.k_major) return false;
  return plan.a.k_major ? launch_wgmma<T, T, WgmmaInstance<kTile, 1, false, true, true>>(swapped)
                        : launch_wgmma<T, T, WgmmaInstance<kTile, 1, false, false, true>>(swapped);
}

/// Half-precision operands and result.
template <class T>
bool launch_half_type(const WgmmaLaunch& launch) {
  return dispatch_tile<kWgmmaTiles.size()>(launch.plan.tile, [&]<WgmmaTile kTile>() {
    if constexpr (info(kTile).swap_ab)
      return launch_swapped<T, kTile>(launch);
    else
      return launch_layout<T, T, kTile, 1, false>(launch);
  });
}

}  // namespace xgemm::matmul
