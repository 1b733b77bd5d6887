// The candidate of mma/large.cuh, by the rates of the device (machine.h): no time was fitted.
#include <algorithm>

#include "device/integer.h"
#include "matmul/mma/geometry.h"
#include "matmul/plan/operands.h"
#include "matmul/plan/plan.h"

namespace xgemm::matmul {
namespace {

constexpr double kStart = 2.5;                       // of a CTA: the first loads, the store of C; microseconds
constexpr double kReached = 0.82, kTwoParts = 0.79;  // shares of the rate: an H200 with XGEMM_ARCH=80; of that with sums in fp32

/// CTAs of a tile that find room on an SM.
int beside_of(const DeviceProperties& gpu, LargeTile tile, int parts) {
  constexpr std::size_t kReserved = 1024;  // of a CTA, by the system
  const std::size_t bytes = static_cast<std::size_t>(geometry(tile).slots * large_slot_bytes(tile, parts));
  return bytes + kReserved > gpu.smem_per_block
             ? 0
             : std::min(info(tile).per_sm, static_cast<int>(gpu.smem_per_sm / (bytes + kReserved)));
}

/// A tile with its costs on this device: a k-block takes the tensor cores' time, or that of shared memory, which delivers the
/// fragments of all warps and receives the slot.
TileInfo on_device(const Question& q, LargeTile tile, int parts, int beside) {
  constexpr double kSharedBytes = 128;  // a clock and SM
  TileInfo t = info(tile);
  const MmaGeometry g = geometry(tile);
  const double clocks = static_cast<double>(t.m) * t.n * t.k * (parts == 2 ? 3 : 1) / q.machine.mma;
  const double bytes = 2.0 * t.k * parts * (g.warps_columns * t.m + g.warps_rows * t.n + t.m + t.n);
  const double block = 1e6 / q.machine.clock_hz * std::max(clocks, bytes / kSharedBytes) / (parts == 2 ? kTwoParts : 1);
  t.per_sm = beside, t.start = kStart;
  t.block = t.more = block / kReached;
  return t;
}

}  // namespace

std::optional<LargePlan> offer_large(const Question& q) {
  if (!q.legal.large) return {};
  const Problem& p = q.p;
  LargePlan plan{};
  plan.parts = p.dtype == DType::f32 ? split_parts(p.precision) : 0;
  if (q.forced.empty() && plan.parts == 2 && p.k < kLeastSplitK) return {};
  plan.a = place_operand(p, lines_of_a(p), plan.parts > 0, false);
  plan.b = plan.parts > 0 && p.prepared_b ? prepared_operand(p.n, p.k, plan.parts)
                                          : place_operand(p, lines_of_b(p), plan.parts > 0, false);
  const double passes = pass_us(q, lines_of_a(p), plan.a, plan.parts) + pass_us(q, lines_of_b(p), plan.b, plan.parts);
  Least<LargePlan> least;
  each_tile<LargeTile>(kLargeTiles, q.forced, [&](LargeTile tile, const TileInfo& any) {
    const int beside = beside_of(q.gpu, tile, std::max(1, plan.parts));
    if (has_two_parts(tile) != (plan.parts == 2) || beside == 0) return;
    const TileInfo t = on_device(q, tile, std::max(1, plan.parts), beside);
    const std::int64_t blocks = std::max<std::int64_t>(1, ceil_div(p.k, any.k)), fewest = ceil_div(blocks, kMostLines / 64);
    plan.tile = tile;
    for (std::int64_t wanted = fewest; wanted == fewest || wanted <= blocks; wanted *= 2) {
      plan.split_blocks = ceil_div(blocks, wanted), plan.splits = ceil_div(blocks, plan.split_blocks);
      plan.partial_bytes = plan.splits > 1 ? 4 * plan.splits * p.m * p.n * p.batches : 0;
      least.consider(plan, kNextLaunch + (plan.parts > 0 ? kSplitLaunch : 0) + (passes > 0 ? kNextLaunch + passes : 0) +
                               q.next_launch(2 * plan.partial_bytes) +
                               q.product(t, q.tiles(t), plan.splits, plan.split_blocks * t.k, q.machine.l2_async_bytes));
      if (p.batch_invariant || plan.splits * q.tiles(t) > q.gpu.sm_count * beside) break;
    }
  });
  if (!least.best) return {};
  plan = *least.best;
  for (TensorOperand* x : {&plan.a, &plan.b}) take_copy(q, plan.parts, *x, plan.workspace_bytes);
  if (plan.parts > 0) plan.fallback = simt_fallback(p, q.gpu);
  return plan;
}

}  // namespace xgemm::matmul
