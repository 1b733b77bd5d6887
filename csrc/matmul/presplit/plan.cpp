#include "matmul/presplit/plan.h"

#include <algorithm>

#include "device/integer.h"
#include "matmul/forced.h"
#include "matmul/machine.h"

namespace xgemm::matmul {
namespace {

// Seconds, fitted (docs/log/matmul.md, "Three bf16 parts split by a pass").
constexpr double kLaunch = 1.52e-6, kPass = 1.74e-6;
constexpr double kMerge = 2.08e-6, kMergeBytes = 8.32e10;  // adding splits; bytes per second of a CTA
constexpr double kHidden = 0.204;                          // share of the shorter of products and memory that is not hidden

constexpr std::int64_t kLeastDepth = 129;                 // for a smaller k SGEMM rounds so seldom that truncation would show
constexpr std::int64_t kLeastSplit = 4, kMostSplits = 8;  // blocks of a split; splits that one CTA adds

/// Its parts, K-major, as a copy with rows of whole cache lines.
TensorOperand place(const Problem& p, const OperandLines& x) {
  TensorOperand t = tensor_operand(p, x, 4, true);
  place_copy(t, round_up(t.inner, kPresplitTileK));
  return t;
}

}  // namespace

std::optional<PresplitPlan> plan_presplit(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  if (!serves_fp32_on_tensor_cores(p, gpu) || p.batches > kMostLines / kPresplitParts) return {};
  if (leaves_out_family(forced, "presplit")) return {};
  if (forced.empty() && p.precision != Precision::highest) return {};  // less exact kernels are faster
  if (p.k < kLeastDepth) return {};
  const Machine machine = machine_of(gpu);
  PresplitPlan plan{};
  plan.a = place(p, lines_of_a(p)), plan.b = place(p, lines_of_b(p));
  double parts_bytes = 0;
  std::int64_t units = 0;
  for (TensorOperand* x : {&plan.a, &plan.b}) {
    if (x->plane > kMostLines * 64 / kPresplitParts / x->batches) return {};
    x->copy = reserve(plan.workspace_bytes, 2 * kPresplitParts * x->plane * x->batches);
    const std::int64_t own = presplit_units(x->other) * presplit_units(p.k) * x->batches;
    x->stats = reserve(plan.workspace_bytes, own);
    units += own;
    parts_bytes += static_cast<double>(x->other * p.k * x->batches);
  }
  if (units > kMostLines) return {};
  const double pass = kPass + (4 + 2.0 * kPresplitParts) * parts_bytes / machine.presplit_bytes;
  const double bytes = 2.0 * kPresplitParts * parts_bytes + 4.0 * static_cast<double>(p.m * p.n) * static_cast<double>(p.batches);
  plan.blocks = ceil_div(p.k, kPresplitTileK);
  PresplitPlan best{};
  best.seconds = 1e30;
  for (std::size_t i = 0; i < kPresplitTiles.size(); ++i) {
    const PresplitTileInfo& tile = kPresplitTiles[i];
    if (leaves_out_tile(forced, tile.name)) continue;
    plan.tile = static_cast<PresplitTile>(i), plan.tiles_x = ceil_div(p.m, tile.x), plan.tiles_y = ceil_div(p.n, tile.y);
    if (plan.tiles_x > kMostLines / plan.tiles_y / p.batches / plan.blocks) continue;
    const std::int64_t tiles = plan.tiles_x * plan.tiles_y * p.batches;
    const std::int64_t most =
        std::max<std::int64_t>(1, std::min({std::int64_t{gpu.sm_count} / tiles, plan.blocks / kLeastSplit, kMostSplits}));
    for (std::int64_t wanted = 1; wanted <= most; ++wanted) {
      const auto turns = static_cast<double>(plan.cut(tiles, wanted, gpu.sm_count));
      const bool split = plan.splits > 1;
      const double cycles = turns * (static_cast<double>(plan.split_blocks) * tile.block + tile.fixed);
      const double merging = split ? kMerge + static_cast<double>(plan.splits * tile.x * tile.y * 8) / kMergeBytes : 0;
      const double products = cycles / machine.hertz_tensor, memory = bytes / machine.read_bytes;
      plan.seconds = std::max(products, memory) + kHidden * std::min(products, memory) + kLaunch + merging + pass;
      plan.partial_bytes = split ? plan.ctas * tile.x * tile.y * 8 : 0;
      plan.counter_bytes = split ? plan.ctas * (tile.x / 64) * 4 : 0;
      if (plan.seconds < best.seconds) best = plan;
    }
  }
  if (best.seconds >= 1e30) return {};
  return best;
}

}  // namespace xgemm::matmul
