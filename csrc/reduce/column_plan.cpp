// Plans of columns: a CTA's tile of them, the splits of a column, how many threads share a short one.
#include <algorithm>
#include <numeric>

#include "device/integer.h"
#include "reduce/layout.h"

namespace xgemm::reduce {
namespace {

constexpr std::int64_t kWarp = 32;

/// Are all strides whole vectors?
bool in_vectors(const DimList& list, std::int64_t width) {
  return std::all_of(list.begin(), list.end(), [&](const Dim& d) { return d.strides[kIn] % width == 0; });
}

/// Threads of a CTA of the column kernel. It keeps for a column a state, of argmax value and position.
int threads_of(const Layout& layout) {
  const auto width = static_cast<std::size_t>(layout.width);
  const std::size_t position = width == 8 ? 4 : width == 4 ? 8 : 16;
  return column_threads(layout.state == State::index ? position : layout.state_bytes, width);
}

/// The most lanes of a folded tile: then the positions of a thread are misaligned alike for any stride.
std::int64_t most_fold_lanes(const Layout& layout) { return threads_of(layout) / std::max<std::int64_t>(8, layout.width); }

/// How many neighbouring positions of `columns` columns, of `count` dense positions in all, become one position of more columns:
/// as many as fill a tile, in whole vectors; 1 if one position fills most of its lanes (seven of ten).
std::int64_t repeat_of(const Layout& layout, bool whole, std::int64_t columns, std::int64_t count) {
  const std::int64_t width = layout.width, most = (most_fold_lanes(layout) - 1) * width, unit = width / std::gcd(columns, width);
  const std::int64_t lanes = round_up_pow2(ceil_div(columns, width) + (whole ? 0 : 1));
  if (10 * columns > 7 * lanes * width || unit * columns > most || columns > most / 2) return 1;
  return std::min(most / (unit * columns), ceil_div(count, unit)) * unit;
}

/// Takes the tile's dim out of `kept`, a folded run out of `gone`: the columns of a group, side by side.
void take_columns(ColumnPlan& plan, Layout& layout, bool folded) {
  const Dim tile = layout.kept.back();
  layout.kept.pop_back();
  plan.run = folded ? layout.gone.back().size : 1;
  if (folded) layout.gone.pop_back();
  plan.columns = tile.size * plan.run;
  plan.positions = plan.length / plan.run;
  plan.column_stride = folded ? 1 : tile.strides[kIn];
  plan.column_out = tile.strides[kOut];
  plan.column_outputs = tile.size;
  plan.vector = plan.column_stride == 1;
  const bool one_dim = layout.gone.count == 1;
  plan.aligned = plan.vector && one_dim && plan.columns % layout.width == 0 && in_vectors(layout.gone, layout.width) &&
                 in_vectors(layout.kept, layout.width);
  plan.cut = plan.columns;
  // Only the loop over aligned blocks knows where the last of several positions side by side ends.
  if (!layout.folds() || !plan.vector || !one_dim || layout.gone.back().strides[kIn] != plan.columns) return;
  Dim& dim = layout.gone.back();
  plan.repeat = static_cast<int>(repeat_of(layout, plan.run == 1 && plan.aligned, plan.columns, dim.size));
  plan.positions = ceil_div(dim.size, plan.repeat);
  plan.cut = (dim.size - (plan.positions - 1) * plan.repeat) * plan.columns;
  plan.columns *= plan.repeat;
  dim = {plan.positions, {plan.columns, 0}};
}

/// A tile of `lanes` 16-byte columns, threads / lanes positions at a time.
void plan_tile(ColumnPlan& plan, const Layout& layout, std::int64_t stride, int sm_count) {
  // Tiles per SM from which on a CTA takes kilobytes side by side, so that few states are left to join.
  constexpr std::int64_t kManyTilesPerSm = 32;
  const std::int64_t width = layout.width, threads = plan.threads;
  const bool folded = plan.run * plan.repeat > 1, misaligned = layout.address % 16 != 0;
  const std::int64_t vectors = ceil_div(plan.columns, width), of_run = round_up_pow2(ceil_div(plan.run, width) + 1);
  const std::int64_t most = folded ? std::max(most_fold_lanes(layout), of_run) : kWarp;
  // Unaligned rows need one more 16-byte block.
  const bool runs = plan.vector && stride >= width;
  std::int64_t lanes = std::min(most, round_up_pow2(vectors + (folded || (runs && !plan.aligned) ? 1 : 0)));
  while (!folded && lanes < threads && ceil_div(vectors, 2 * lanes) >= kManyTilesPerSm * sm_count) lanes *= 2;
  plan.lanes = static_cast<int>(lanes);
  // If all positions of a thread have the same misalignment, it reads aligned blocks, one more than the tile has vectors. Folded
  // tiles always have room for that block.
  const bool alike = runs && threads / lanes * stride % width == 0 && (vectors < lanes || lanes >= most);
  const bool whole = plan.aligned && !misaligned, moved = folded || (alike && !whole);
  plan.blocks_loaded = alike || (whole && !folded);
  plan.span = static_cast<int>(moved ? lanes - 1 : lanes);
  const std::int64_t columns = plan.span * width;
  plan.tile = static_cast<int>(folded ? std::min(columns / plan.run * plan.run, plan.columns) : columns);
  plan.tiles = ceil_div(plan.columns, std::int64_t{plan.tile});
  plan.results = plan.outputs_of_tile = plan.tile;
  plan.result_lanes = plan.lanes;
  if (!folded) return;
  const std::int64_t joined = plan.run * plan.repeat;
  plan.outputs_of_tile = static_cast<int>(plan.tile / joined);
  plan.result_lanes = static_cast<int>(round_up_pow2(ceil_div(std::int64_t{plan.outputs_of_tile}, width)));
  plan.results = plan.result_lanes * static_cast<int>(width);
  plan.fold_lanes = static_cast<int>(std::min(round_up_pow2(joined), kWarp));
}

/// `groups`: of tiles.
void plan_splits(ColumnPlan& plan, const Layout& layout, std::int64_t groups, int sm_count) {
  // Steps of kUnroll loads a thread: fewer leave more time in a CTA's end than in its loads, more leave SMs idle at the end.
  constexpr std::int64_t kMinSteps = 16, kMaxSteps = 128;
  const std::int64_t width = layout.width, threads = plan.threads, lanes = plan.lanes, rows = threads / lanes;
  const bool folded = plan.fold_lanes > 0, whole_columns = !folded && lanes > kWarp;
  // One wave of CTAs if each then gets few steps: as many per SM as fit, but one for 16-bit elements, which leaves fewer
  // partial results and reads fewer rows at once. Else waves of at most kMaxSteps steps.
  const std::int64_t resident = (threads == 256 ? 3 : 2) * std::int64_t{sm_count};
  const std::int64_t wanted = threads == 512 && width == 8 ? sm_count : resident;
  const auto whole_steps = [&](std::int64_t positions) { return round_up(positions, kUnroll * rows); };
  const std::int64_t side_by_side = folded ? plan.tiles : ceil_div(ceil_div(plan.columns, width), lanes);
  std::int64_t steps = std::max(ceil_div(plan.positions * side_by_side, rows * wanted), kMinSteps);
  const bool waves = steps > kMaxSteps && plan.tiles > sm_count;
  if (waves) steps = kMaxSteps;
  plan.split_positions = whole_steps(whole_columns ? plan.positions : steps * rows);
  // A few CTAs more than fit at a time take as long as twice as many.
  const std::int64_t fitting = std::max<std::int64_t>(resident / plan.tiles, 1);
  if (!waves && !whole_columns && plan.tiles <= resident && ceil_div(plan.positions, plan.split_positions) > fitting)
    plan.split_positions = whole_steps(ceil_div(plan.positions, fitting));
  // With many groups, longer splits.
  const std::int64_t splits = std::max<std::int64_t>(ceil_div(plan.positions, plan.split_positions), 1);
  const std::int64_t longer =
      std::clamp<std::int64_t>(std::min(kMaxSteps * rows / plan.split_positions, groups * splits / resident), 1, splits);
  plan.split_positions *= ceil_div(splits, ceil_div(splits, longer));
  if (layout.state == State::index)
    plan.split_positions = std::min(plan.split_positions, width == 8 ? kKeyPositions : kPartPositions);
  plan.splits = std::max<std::int64_t>(ceil_div(plan.positions, plan.split_positions), 1);
}

}  // namespace

std::int64_t longest_folded_run(const Layout& layout) {
  constexpr std::int64_t kMostLanes = 128;
  const std::int64_t lanes = layout.arguments.in == DType::f64 ? kWarp : std::min(threads_of(layout) / layout.width, kMostLanes);
  return (lanes - 1) * layout.width;
}

ColumnPlan plan_columns(Layout& layout, bool folded, const DeviceProperties& gpu) {
  ColumnPlan plan{layout.arguments};
  const int sm_count = std::max(gpu.sm_count, 1);
  plan.threads = threads_of(layout);
  take_columns(plan, layout, folded);
  plan_tile(plan, layout, layout.gone.count == 1 ? layout.gone.back().strides[kIn] : 0, sm_count);
  const std::int64_t groups = layout.kept.product() * plan.tiles;
  plan_splits(plan, layout, groups, sm_count);
  plan.ctas = groups * plan.splits;
  plan.early = plan.blocks_loaded && plan.ctas <= sm_count;
  return plan;
}

PackedPlan plan_packed(const Layout& layout, int sm_count) {
  // Positions of a lane, beyond which more lanes share a column; fewer where all groups begin in the same bank.
  constexpr std::int64_t kCtasPerSm = 4, kPositions = 32, kPositionsOfBank = 4;
  PackedPlan plan{layout.arguments};
  const std::int64_t columns = layout.kept.back().size, groups = plan.outputs / columns, group = plan.length * columns,
                     each = group % kWarp == 0 ? kPositionsOfBank : kPositions,
                     most = std::min(kPackedElements / group, ceil_div(groups, kCtasPerSm * sm_count));
  plan.by_columns = ShortDivider::of(columns);
  plan.groups = static_cast<int>(std::max<std::int64_t>(1, most));
  plan.lanes = static_cast<int>(std::min(kWarp, round_up_pow2(ceil_div(plan.length, each))));
  plan.threads = kPackedThreads;
  plan.ctas = ceil_div(groups, std::int64_t{plan.groups});
  return plan;
}

ShortColumnPlan plan_short_columns(Layout& layout, int sm_count) {
  ShortColumnPlan plan{layout.arguments};
  // CTAs of 128 threads alone; from so many trees on a column is long, up to so many one element is read at a time where columns
  // are few, because then single elements occupy more SMs.
  constexpr std::int64_t kThreads = 128, kManyTrees = 16, kFewTrees = 8, kFewTreesPerSm = 1024;
  // Bytes of an SM's cache line. Threads of an SM that keep 4 KB a load in flight need no help if columns are short; teams make
  // four times as many, as far as an SM holds them (2048). Long columns in one wave of CTAs end together: teams make more CTAs.
  constexpr std::int64_t kCacheLine = 128, kEnoughBytes = 4096, kTimes = 4, kThreadsPerSm = 2048;
  const std::int64_t width = layout.width, element = 16 / width, trees = ceil_div(plan.length, std::int64_t{kTree}),
                     sms = std::max(sm_count, 1);
  plan.result_bytes = static_cast<int>(size_of(plan.out));
  bool in_order = true;  // the outputs lie as the vectors do
  std::int64_t next = 1;
  for (std::size_t d = layout.kept.count; d-- > 0; next *= layout.kept.dims[d].size)
    in_order &= layout.kept.dims[d].strides[kOut] == next;
  Dim tile = layout.kept.back();
  layout.kept.pop_back();
  const bool many = trees > kFewTrees || plan.outputs * trees > kFewTreesPerSm * sms;
  if (many && in_order && tile.strides[kIn] == 1 && tile.size % width == 0 && layout.address % 16 == 0 &&
      plan.result_bytes % element == 0 && in_vectors(layout.kept, width) && in_vectors(layout.gone, width)) {
    plan.width = static_cast<int>(width);
    tile.size /= width;
    tile.strides[kIn] = width;
  }
  layout.kept.push_back(tile);
  const std::int64_t load = plan.width * element, vectors = plan.outputs / plan.width, enough = kEnoughBytes / load * sms,
                     least_lanes = std::min(kCacheLine / load, kWarp);
  std::int64_t lanes = kThreads, teams = 1;
  if (vectors < enough || trees >= kManyTrees) {
    const std::int64_t wanted =
        std::max(trees >= kManyTrees ? kTimes : 1, ceil_div(std::min(kTimes * enough, kThreadsPerSm * sms), vectors));
    const std::int64_t most = most_short_column_threads(static_cast<std::size_t>(load)) / least_lanes;
    teams = ceil_div(trees, ceil_div(trees, std::min({wanted, trees, most})));  // as few as need no more rounds
  }
  while (lanes > least_lanes && lanes * teams > kThreads) lanes /= 2;
  plan.lanes = static_cast<int>(lanes);
  plan.teams = static_cast<int>(teams);
  plan.threads = static_cast<int>(lanes * teams);
  plan.ctas = ceil_div(vectors, lanes);
  return plan;
}

}  // namespace xgemm::reduce
