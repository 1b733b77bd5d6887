#include "reduce/column_plan.h"

#include <algorithm>
#include <numeric>

#include "device/integer.h"

namespace xgemm::reduce {

namespace {

/// Of a column's maximum: value and position.
constexpr std::size_t index_part_bytes(std::int64_t width) { return width >= 8 ? 4 : width == 4 ? 8 : 16; }

/// Bytes that a thread of the kernels for columns keeps for a column within its CTA.
std::size_t part_bytes(const Plan& plan, std::int64_t width) {
  const State state = state_of(plan.kind);
  return state == State::index ? index_part_bytes(width) : state_bytes(state, plan.in);
}

/// Threads of a CTA of the column kernel.
int threads_of(const Plan& plan, std::int64_t width) {
  return column_threads(part_bytes(plan, width), static_cast<std::size_t>(width));
}

}  // namespace

std::int64_t most_fold_lanes(const Plan& plan, std::int64_t width) {
  return threads_of(plan, width) / std::max<std::int64_t>(8, width);
}

std::int64_t repeat_of(const Plan& plan, std::int64_t columns, std::int64_t count, std::int64_t width) {
  const std::int64_t most = (most_fold_lanes(plan, width) - 1) * width, unit = width / std::gcd(columns, width);
  const bool whole = plan.run == 1 && plan.aligned;
  const std::int64_t lanes = round_up_pow2(ceil_div(columns, width) + (whole ? 0 : 1));
  if (10 * columns > 7 * lanes * width || unit * columns > most || columns > most / 2) return 1;
  return std::min(most / (unit * columns), ceil_div(count, unit)) * unit;
}

void plan_columns(Plan& plan, std::int64_t outer, std::int64_t width, std::int64_t stride, bool misaligned,
                  const DeviceProperties& gpu) {
  constexpr std::int64_t kMinSteps = 16, kMaxSteps = 128, kManyTilesPerSm = 32, kWarp = 32;
  const State state = state_of(plan.kind);
  const bool index = state == State::index, folded = plan.run * plan.repeat > 1;
  const bool any_order = index || state == State::maximum;  // gives the same result, so the number of groups may decide
  const std::int64_t threads = threads_of(plan, width), sms = std::max(gpu.sm_count, 1);
  plan.kernel = Kernel::columns;
  plan.threads = static_cast<int>(threads);
  // 8-bit elements: 16 states per thread; half as many lanes keep as many positions side by side.
  const std::int64_t most = folded        ? most_fold_lanes(plan, width)
                            : width == 16 ? kWarp / 2
                                          : kWarp,
                     vectors = ceil_div(plan.columns, width);
  // Unaligned rows need one more 16-byte block.
  const bool runs = plan.vector && stride >= width;
  std::int64_t lanes = std::min(most, round_up_pow2(vectors + (folded || (runs && !plan.aligned) ? 1 : 0)));
  // With very many columns a CTA takes kilobytes side by side, so that few states are left to join.
  while (!folded && width < 16 && lanes < threads && ceil_div(vectors, 2 * lanes) >= kManyTilesPerSm * sms) lanes *= 2;
  const bool many = !folded && lanes > kWarp;
  plan.lanes = static_cast<int>(lanes);
  const std::int64_t rows = threads / lanes;
  // If all positions of a thread have the same misalignment, it reads aligned blocks, one more than the tile has vectors. The
  // order of additions is the same. Folded tiles always have room for that block.
  const bool alike = runs && rows * stride % width == 0 && (vectors < lanes || lanes >= most);
  const auto columns_of = [&](bool moved) {
    const std::int64_t columns = (moved ? lanes - 1 : lanes) * width;
    return folded ? std::min(columns / plan.run * plan.run, plan.columns) : columns;
  };
  const bool moved = folded || (alike && (!plan.aligned || misaligned));
  const std::int64_t tiles = ceil_div(plan.columns, columns_of(folded || (alike && !plan.aligned)));
  plan.blocks_loaded = folded ? alike : moved || (plan.aligned && !misaligned);
  plan.span = static_cast<int>(moved ? lanes - 1 : lanes);
  plan.tile = static_cast<int>(columns_of(moved));
  plan.tiles = ceil_div(plan.columns, plan.tile);
  plan.results = plan.outputs_of_tile = plan.tile;
  plan.result_lanes = plan.lanes;
  if (folded) {
    const std::int64_t joined = plan.run * plan.repeat;
    plan.outputs_of_tile = static_cast<int>(plan.tile / joined);
    plan.result_lanes = static_cast<int>(round_up_pow2(ceil_div(std::int64_t{plan.outputs_of_tile}, width)));
    plan.results = plan.result_lanes * static_cast<int>(width);
    plan.fold_lanes = static_cast<int>(std::min(round_up_pow2(joined), kWarp));
  }

  // One wave of CTAs if each then gets few steps: as many per SM as fit, but one for 16-bit elements, which leaves fewer
  // partial results and reads fewer rows at once. Else waves of at most kMaxSteps steps.
  const std::int64_t resident = (threads == 256 ? 3 : 2) * sms, blocks = threads == 512 && width == 8 ? sms : resident;
  const auto whole_steps = [&](std::int64_t positions) { return ceil_div(positions, kUnroll * rows) * kUnroll * rows; };
  std::int64_t steps = std::max(ceil_div(plan.positions * (folded ? tiles : ceil_div(vectors, lanes)), rows * blocks), kMinSteps);
  const bool waves = steps > kMaxSteps && tiles > sms;
  if (waves) steps = kMaxSteps;
  if (many) steps = ceil_div(plan.positions, rows);
  plan.chunk = whole_steps(steps * rows);
  // A few CTAs more than fit at a time take as long as twice as many.
  const std::int64_t fitting = std::max<std::int64_t>(resident / tiles, 1);
  if (!waves && !many && tiles <= resident && ceil_div(plan.positions, plan.chunk) > fitting)
    plan.chunk = whole_steps(ceil_div(plan.positions, fitting));
  const std::int64_t longest = !index ? INT64_MAX : width >= 8 ? kKeyPositions : kPartPositions, groups = outer * plan.tiles;
  plan.chunk = std::min(plan.chunk, longest);
  const auto cut = [&] { plan.strips = std::max<std::int64_t>(ceil_div(plan.positions, plan.chunk), 1); };
  cut();
  // With many groups a CTA takes several parts of one, which are joined in the same order, or one long part if any will do.
  std::int64_t parts =
      plan.blocks_loaded ? std::min(kMaxSteps * rows / plan.chunk, groups * plan.strips / (any_order ? resident : 4 * sms)) : 1;
  parts = std::clamp<std::int64_t>(parts, 1, plan.strips);
  if (any_order) {
    plan.chunk = std::min(plan.chunk * ceil_div(plan.strips, ceil_div(plan.strips, parts)), longest);
    cut();
    parts = 1;
  }
  plan.split = ceil_div(plan.strips, parts);
  plan.per_block = ceil_div(plan.strips, plan.split);
  plan.split = ceil_div(plan.strips, plan.per_block);
  plan.blocks = groups * plan.split;
  plan.early = plan.blocks_loaded && plan.blocks <= sms;
}

bool in_vectors(DimList& list, std::int64_t width) {
  return std::all_of(list.begin(), list.end(), [&](const Dim& d) { return d.strides[kIn] % width == 0; });
}

std::int64_t most_short_positions(const Plan& plan) {
  const State state = state_of(plan.kind);
  const auto bytes = static_cast<std::int64_t>(state_bytes(state, plan.in));
  return kShortColumnTree * (state == State::index ? 128 : bytes <= 4 ? 96 : 512 / bytes);
}

void plan_short_columns(Plan& plan, DimList& kept, DimList& gone, std::int64_t width, std::uintptr_t address, int sm_count) {
  constexpr std::int64_t kThreads = 128, kMostStateBytes = 32 << 10, kFewTrees = 8, kLine = 128, kWarp = 32;
  // Threads of an SM that keep 32 KB in flight, eight loads each, need no help if columns are short; teams make four times as
  // many, as far as an SM holds them. Long columns in one wave of CTAs end together: teams make more, shorter CTAs.
  constexpr std::int64_t kEnoughBytes = 4096, kTimes = 4, kResident = 2048, kManyTrees = 16;
  const std::int64_t trees = ceil_div(plan.length, std::int64_t{kShortColumnTree}), sms = std::max(sm_count, 1),
                     element = 16 / width, result_bytes = static_cast<std::int64_t>(size_of(plan.out));
  bool in_order = true;  // the outputs lie as the vectors do
  std::int64_t next = 1;
  for (std::size_t d = kept.count; d-- > 0; next *= kept.dims[d].size) in_order &= kept.dims[d].strides[kOut] == next;
  Dim tile = kept.back();
  kept.pop_back();
  plan.kernel = Kernel::short_columns;
  // With few elements in all, single ones occupy more SMs.
  if ((trees > kFewTrees || plan.outputs * trees > 1024 * sms) && takes_column_vectors(size_of(plan.in)) && in_order &&
      tile.strides[kIn] == 1 && result_bytes % element == 0)
    for (std::int64_t w = 4; w <= width; w *= 2)
      if (tile.size % w == 0 && static_cast<std::int64_t>(address) % (w * element) == 0 && in_vectors(kept, w) &&
          in_vectors(gone, w))
        plan.width = static_cast<int>(w);
  plan.vector = plan.width > 1;
  plan.result_bytes = static_cast<std::uint8_t>(result_bytes);
  if (plan.vector) {
    tile.size /= plan.width;
    tile.strides[kIn] = plan.width;
  }
  kept.push_back(tile);
  const std::int64_t load = plan.width * element, units = plan.outputs / plan.width, enough = kEnoughBytes / load * sms,
                     least_lanes = std::min(kLine / load, kWarp);
  std::int64_t teams = 1, lanes = kThreads;
  if (units < enough || trees >= kManyTrees) {
    const std::int64_t wanted = std::max(trees >= kManyTrees ? kTimes : 1,
                                         ceil_div(std::min(kTimes * enough, kResident * sms), units)),
                       most = most_short_column_threads(static_cast<std::size_t>(load)) / least_lanes;
    teams = ceil_div(trees, ceil_div(trees, std::min({wanted, trees, most})));  // as few as need no more rounds
  }
  plan.strips = teams == 1 ? 1 : state_of(plan.kind) == State::index ? teams : trees;
  const std::int64_t bytes = plan.strips * plan.width * static_cast<std::int64_t>(part_bytes(plan, width));
  while (lanes > least_lanes && (lanes * teams > kThreads || (teams > 1 && lanes * bytes > kMostStateBytes))) lanes /= 2;
  plan.lanes = static_cast<int>(lanes);
  plan.threads = static_cast<int>(lanes * teams);
  plan.per_block = lanes;
  plan.blocks = ceil_div(units, lanes);
}

}  // namespace xgemm::reduce
