#include "matmul/presplit/plan.h"

#include <algorithm>

#include "device/integer.h"
#include "matmul/machine.h"

namespace xgemm::matmul {
namespace {

// Seconds, fitted (docs/log/matmul.md, "Three bf16 parts split by a pass").
constexpr double kLaunch = 1.52e-6, kPass = 1.74e-6;
constexpr double kPassBytes = 3.91e12;                     // read and written by the pass, bytes per second
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
  constexpr std::int64_t kLimit = (std::int64_t{1} << 31) - 1024;
  if (gpu.major != 9 || p.dtype != DType::f32 || p.precision == Precision::ieee || p.batch_invariant || p.gated || p.prepared_b)
    return {};
  if (p.m < 1 || p.n < 1 || p.k < 1 || p.m > kLimit || p.n > kLimit || p.k > kLimit || p.batches > kLimit / kPresplitParts)
    return {};
  if (!forced.empty() && !forced.starts_with("presplit")) return {};
  if (forced.empty() && p.precision != Precision::highest) return {};  // less exact kernels are faster
  if (p.k < kLeastDepth) return {};
  const Machine machine = machine_of(gpu);
  PresplitPlan plan{};
  plan.a = place(p, lines_of_a(p)), plan.b = place(p, lines_of_b(p));
  double parts_bytes = 0;
  std::int64_t units = 0;
  for (TensorOperand* x : {&plan.a, &plan.b}) {
    const auto take = [&](std::int64_t bytes) {
      const std::int64_t at = plan.workspace_bytes;
      plan.workspace_bytes = round_up(at + bytes, 256);
      return at;
    };
    if (x->plane > kLimit * 64 / kPresplitParts / x->batches) return {};
    x->copy = take(2 * kPresplitParts * x->plane * x->batches);
    const std::int64_t own = presplit_units(x->other) * presplit_units(p.k) * x->batches;
    x->stats = take(own);
    units += own;
    parts_bytes += static_cast<double>(x->other * p.k * x->batches);
  }
  if (units > kLimit) return {};
  const double pass = kPass + (4 + 2.0 * kPresplitParts) * parts_bytes / kPassBytes;
  const double bytes = 2.0 * kPresplitParts * parts_bytes + 4.0 * static_cast<double>(p.m * p.n) * static_cast<double>(p.batches);
  plan.blocks = ceil_div(p.k, kPresplitTileK);
  plan.seconds = 1e30;
  for (std::size_t i = 0; i < kPresplitTiles.size(); ++i) {
    const PresplitTileInfo& tile = kPresplitTiles[i];
    if (forced.find('_') != forced.npos && forced != tile.name) continue;
    const std::int64_t tiles_x = ceil_div(p.m, tile.x), tiles_y = ceil_div(p.n, tile.y);
    if (tiles_x > kLimit / tiles_y / p.batches / plan.blocks) continue;
    const std::int64_t tiles = tiles_x * tiles_y * p.batches;
    const std::int64_t most =
        std::max<std::int64_t>(1, std::min({std::int64_t{gpu.sm_count} / tiles, plan.blocks / kLeastSplit, kMostSplits}));
    for (std::int64_t wanted = 1; wanted <= most; ++wanted) {
      const std::int64_t split_blocks = ceil_div(plan.blocks, wanted), splits = ceil_div(plan.blocks, split_blocks);
      const std::int64_t ctas = std::min<std::int64_t>(gpu.sm_count, tiles * splits), turns = ceil_div(tiles * splits, ctas);
      const double cycles = static_cast<double>(turns) * (static_cast<double>(split_blocks) * tile.block + tile.fixed);
      const double merging = splits == 1 ? 0 : kMerge + static_cast<double>(splits * tile.x * tile.y * 8) / kMergeBytes;
      const double products = cycles / machine.hertz_tensor, memory = bytes / machine.read_bytes;
      const double seconds = std::max(products, memory) + kHidden * std::min(products, memory) + kLaunch + merging + pass;
      if (seconds < plan.seconds) {
        plan.seconds = seconds;
        plan.tile = static_cast<PresplitTile>(i);
        plan.tiles_x = tiles_x, plan.tiles_y = tiles_y;
        plan.splits = splits, plan.split_blocks = split_blocks, plan.ctas = ctas;
        plan.partial_bytes = splits > 1 ? ctas * tile.x * tile.y * 8 : 0;
        plan.counter_bytes = splits > 1 ? ctas * (tile.x / 64) * 4 : 0;
      }
    }
  }
  if (plan.seconds >= 1e30) return {};
  return plan;
}

}  // namespace xgemm::matmul
