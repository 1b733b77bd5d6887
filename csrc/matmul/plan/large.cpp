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
  const std::int64_t sums = 4 * p.m * p.n * p.batches;
  std::optional<LargePlan> best;
  for (std::size_t i = 0; i < kLargeTiles.size(); ++i) {
    const auto tile = static_cast<LargeTile>(i);
    if (has_two_parts(tile) != (plan.parts == 2) || leaves_out_tile(q.forced, kLargeTiles[i].name)) continue;
    const int beside = beside_of(q.gpu, tile, std::max(1, plan.parts));
    if (beside == 0) continue;
    plan.tile = tile;
    const std::int64_t blocks = std::max<std::int64_t>(1, ceil_div(p.k, kLargeTiles[i].k)),
                       least_splits = ceil_div(blocks, kMostLines / 64);
    const TileInfo t = on_device(q, tile, std::max(1, plan.parts), beside);
    const std::int64_t tiles = ceil_div(p.m, t.m) * ceil_div(p.n, t.n) * p.batches;
    for (std::int64_t wanted = least_splits; wanted == least_splits || wanted <= blocks; wanted *= 2) {
      plan.split_blocks = ceil_div(blocks, wanted), plan.splits = ceil_div(blocks, plan.split_blocks);
      plan.partial_bytes = plan.splits > 1 ? plan.splits * sums : 0;
      const double add = plan.splits > 1 ? kNextLaunch + q.move(2 * static_cast<double>(plan.partial_bytes)) : 0;
      const double us = kNextLaunch + (plan.parts > 0 ? kSplitLaunch : 0) + (passes > 0 ? kNextLaunch + passes : 0) + add +
                        q.product(t, tiles, plan.splits, plan.split_blocks * t.k, q.machine.l2_async_bytes);
      plan.seconds = 1e-6 * us;
      if (!best || plan.seconds < best->seconds) best = plan;
      if (p.batch_invariant || plan.splits * tiles > q.gpu.sm_count * beside) break;
    }
  }
  if (!best) return {};
  for (TensorOperand* x : {&best->a, &best->b}) take_copy(q, best->parts, *x, best->workspace_bytes);
  if (best->parts > 0) best->fallback = simt_fallback(p, q.gpu);
  return best;
}

}  // namespace xgemm::matmul
