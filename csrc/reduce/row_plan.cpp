// Plans of rows: one element or vector at a time.
#include <algorithm>

#include "device/integer.h"
#include "reduce/layout.h"

namespace xgemm::reduce {
namespace {

constexpr std::int64_t kWarp = 32, kThreads = 256, kWarps = kThreads / kWarp;
constexpr std::int64_t kStep = kWarp * kUnroll;  ///< 16-byte vectors of a warp's step
constexpr std::int64_t kCtasPerSm = 4;           ///< CTAs of 256 threads that an SM holds (64 registers a thread)
constexpr std::int64_t kCluster = 8;             ///< CTAs of a cluster that every GPU of compute capability 9.0 supports
/// Bytes of a cluster's states in its first CTA: without an attribute a CTA has 48 KiB.
constexpr std::int64_t kMostStateBytes = 40 << 10;

/// One split a row. A row's fixed cost is shared by the rows of a warp, so many rows take fewer lanes.
void plan_short_rows(RowPlan& plan, bool few, std::int64_t resident) {
  // Measured on an H200: several steps a lane for 16-bit elements and for fp32 rows with an incomplete vector, whose rows cost
  // most beside their elements; at least eight lanes.
  constexpr std::int64_t kStepsOfLane = 4, kLeastLanes = 8, kMostRowsOfTeam = 8;
  plan.split_vectors = std::max<std::int64_t>(plan.vectors, 1);
  plan.threads = static_cast<int>(kThreads);
  // The elements of an incomplete last vector go to one lane each.
  const std::int64_t vectors = plan.vector ? std::max<std::int64_t>(plan.full, 1) : plan.split_vectors;
  const std::int64_t lanes = round_up_pow2(ceil_div(vectors, std::int64_t{kUnroll}));
  const bool several = !few && (is_half(plan.in) || (plan.in == DType::f32 && plan.full < plan.vectors));
  plan.lanes = static_cast<int>(
      several ? std::clamp(round_up_pow2(ceil_div(vectors, kStepsOfLane * kUnroll)), std::min(lanes, kLeastLanes), kWarp)
              : std::min(lanes, kWarp));
  // A row of one step takes less time than starting a warp.
  const std::int64_t teams = kThreads / plan.lanes, most = plan.vectors <= kStep ? kMostRowsOfTeam : 1;
  plan.per_cta = teams * std::clamp<std::int64_t>(plan.outputs / (teams * 4 * resident), 1, most);
  plan.ctas = ceil_div(plan.outputs, plan.per_cta);
}

/// Vectors of a split of few rows: as few steps as leave a warp of the GPU for each split, in one cluster a row.
std::int64_t split_of_few_rows(const RowPlan& plan, const DeviceProperties& gpu) {
  const std::int64_t ctas = gpu.major == 9 ? kCluster : 1;
  const std::int64_t warps =
      std::min(ctas * kWarps, kCtasPerSm * kWarps * std::max(gpu.sm_count, 1) / std::max<std::int64_t>(plan.outputs, 1));
  return std::min(round_up(ceil_div(plan.vectors, warps), kStep), kSplitVectors);
}

/// Vectors of a split of a row that is divided evenly over all CTAs that run at a time, or over whole waves of them.
std::int64_t split_of_long_row(const RowPlan& plan, std::int64_t resident) {
  constexpr std::int64_t kLongest = 4096;
  const std::int64_t warps = resident * kWarps, waves = ceil_div(plan.vectors, warps * kLongest);
  return round_up(ceil_div(plan.vectors, warps * waves), kWarp);
}

/// The warps of a CTA of which the fewest are idle while a row's splits are reduced: all, or at least half of them.
std::int64_t busy_warps(std::int64_t splits) {
  const auto idle = [&](std::int64_t w) { return ceil_div(splits, w) * w - splits; };
  std::int64_t warps = std::min(kWarps, splits);
  for (std::int64_t w = warps - 1; 2 * w >= kWarps; --w)
    if (idle(w) < idle(warps)) warps = w;
  return warps;
}

/// The warps of a CTA that takes all splits of a row. The order in which states are joined does not depend on them as long as no
/// thread joins two: up to 32 states for any number of warps, 128 for four.
std::int64_t warps_of_row(const RowPlan& plan, std::int64_t resident) {
  const std::int64_t warps = plan.splits <= kThreads / 2 ? busy_warps(plan.splits) : kWarps;
  if (plan.splits > kWarp) return warps;
  // With many rows one or two warps, which wait less for each other.
  std::int64_t enough = plan.splits <= 4 ? 1 : 2;
  while (enough < warps && plan.outputs * enough < resident * kWarps * 3 / 2) enough *= 2;
  return std::min(warps, enough);
}

/// Several splits a row, a warp each. The row's length decides the splits and how a grouped row's states are joined; how many
/// CTAs share a row otherwise may depend on the number of rows.
void plan_split_rows(RowPlan& plan, bool few, std::int64_t runs, const DeviceProperties& gpu, std::size_t state) {
  constexpr std::int64_t kGrouped = 1 << 20, kGroups = 512, kMaxSplits = 4096;
  const std::int64_t resident = kCtasPerSm * std::max(gpu.sm_count, 1);
  plan.lanes = static_cast<int>(kWarp);
  plan.grouped = runs > 1 ? runs * plan.splits_per_run > kMaxSplits : plan.vectors > kGrouped;
  plan.split_vectors = few ? split_of_few_rows(plan, gpu) : kSplitVectors;
  few &= plan.split_vectors < kSplitVectors;
  if (plan.grouped && runs == 1) plan.split_vectors = split_of_long_row(plan, resident);
  plan.splits = plan.per_cta = runs > 1 ? runs * plan.splits_per_run : ceil_div(plan.vectors, plan.split_vectors);
  std::int64_t warps = kWarps;
  if (few) {
    warps = plan.per_cta = std::min(kWarps, plan.splits);
  } else if (plan.grouped) {
    plan.per_cta = runs > 1 ? std::clamp(round_up_pow2(plan.splits / kGroups), kWarps, kMaxStates) : kWarps;
  } else if (plan.splits > kWarps && (plan.outputs < resident || plan.splits > kMaxStates)) {
    const std::int64_t share = ceil_div(plan.splits * plan.outputs, 4 * resident);  // half a CTA's warps if rows are few
    plan.per_cta = std::min({share <= kWarps / 2 ? kWarps / 2 : ceil_div(share, kWarps) * kWarps, plan.splits, kMaxStates});
    if (plan.splits <= kWarp) {
      if (plan.per_cta == kWarps) plan.per_cta = busy_warps(plan.splits);
      warps = std::min(plan.per_cta, kWarps);
    }
  } else {
    warps = warps_of_row(plan, resident);
  }
  plan.threads = static_cast<int>(warps * kWarp);
  plan.ctas_per_row = ceil_div(plan.splits, plan.per_cta);
  const bool held = plan.splits * static_cast<std::int64_t>(state) <= kMostStateBytes;
  if (gpu.major == 9 && !plan.grouped && held && plan.ctas_per_row <= kCluster)
    plan.cluster = static_cast<int>(plan.ctas_per_row);
  plan.ctas = plan.outputs * plan.ctas_per_row;
}

/// Runs that are longer than a folded tile's are divided into splits of their own.
bool splits_runs(const Layout& layout) {
  return layout.folds() && layout.state != State::index && layout.has_runs() && layout.arguments.in != DType::f64 &&
         layout.gone.back().size > longest_folded_run(layout);
}

}  // namespace

bool has_vector_rows(const Layout& layout) {
  if (layout.gone.count == 0) return false;
  const Dim& inner = layout.gone.back();
  return inner.strides[kIn] == 1 && (layout.gone.count == 1 || splits_runs(layout) || inner.size % layout.width == 0);
}

RowPlan plan_rows(const Layout& layout, const DeviceProperties& gpu) {
  RowPlan plan{layout.arguments};
  const bool runs = splits_runs(layout);
  plan.vector = has_vector_rows(layout);
  plan.run = runs ? layout.gone.back().size : plan.length;
  plan.vectors = ceil_div(plan.run, layout.width);
  plan.full = plan.vector ? plan.run / layout.width : 0;
  if (runs) plan.splits_per_run = ceil_div(plan.vectors, kSplitVectors);
  // Up to two rows an SM leave SMs idle.
  const bool few = plan.vector && !runs && !layout.batch_invariant && plan.outputs <= 2 * gpu.sm_count;
  if (!runs && plan.vectors <= (few ? kStep : kSplitVectors))
    plan_short_rows(plan, few, kCtasPerSm * std::max(gpu.sm_count, 1));
  else
    plan_split_rows(plan, few, runs ? plan.length / plan.run : 1, gpu, layout.state_bytes);
  return plan;
}

ElementPlan plan_elements(const Layout& layout, std::int64_t most, int sm_count) {
  ElementPlan plan{layout.arguments};
  const std::int64_t trees = ceil_div(plan.length, std::int64_t{kTree}), sms = std::max(sm_count, 1);
  plan.lanes = static_cast<int>(std::min(trees <= kWarp ? round_up_pow2(trees) : round_up(trees, kWarp), most));
  // Whole warps, and rows for every SM.
  const std::int64_t rows = std::max<std::int64_t>(round_up_pow2(ceil_div(plan.outputs, sms)), kWarp / plan.lanes);
  plan.rows = static_cast<int>(std::min<std::int64_t>(rows, kElementThreads / plan.lanes));
  plan.threads = plan.rows * plan.lanes;
  plan.ctas = ceil_div(plan.outputs, std::int64_t{plan.rows});
  return plan;
}

}  // namespace xgemm::reduce
