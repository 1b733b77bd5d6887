#include "matmul/tf32/plan.h"

#include <algorithm>

#include "device/integer.h"
#include "matmul/plan/legality.h"
#include "matmul/plan/roofline.h"

namespace xgemm::matmul {
namespace {

constexpr double kLaunch = 1.08, kJoin = 0.7;  // microseconds; kJoin: per level of kTf32Fan sums
constexpr double kTransposed = 2.44;  // time of a copy that transposes, relative to another: it writes half sectors of L2

TensorOperand place(const Problem& p, const OperandLines& x, bool along_k = false) {
  TensorOperand t = tensor_operand(p, x, 4, along_k);
  if (t.copied) place_copy(t, round_up(t.inner, kTf32TileK));  // whole cache lines
  return t;
}

}  // namespace

std::optional<Tf32Plan> plan_tf32(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  if (!serves_tf32(p, gpu) || leaves_out_family(forced, "tf32")) return {};
  const Machine machine = machine_of(gpu);
  Tf32Plan plan{};
  plan.a = place(p, lines_of_a(p)), plan.b = place(p, lines_of_b(p));
  const auto copy_us = [&](const TensorOperand& x) {
    return 1e6 * 8 * static_cast<double>(x.ld * x.other * x.batches) / machine.read_bytes;
  };
  const TensorOperand* transposed = nullptr;
  if (!plan.a.k_major && !plan.b.k_major) {  // the one whose transposition adds less to the other copies
    const auto added = [&](const TensorOperand& x) { return (kTransposed - (x.copied ? 1 : 0)) * copy_us(x); };
    const bool of_a = added(plan.a) < added(plan.b);
    TensorOperand& x = of_a ? plan.a : plan.b;
    x = place(p, of_a ? lines_of_a(p) : lines_of_b(p), true);
    transposed = &x;
  }
  double copying = 0;
  for (TensorOperand* x : {&plan.a, &plan.b}) {
    if (!x->copied) continue;
    copying = std::max(copying, kNextLaunch) + (x == transposed ? kTransposed : 1) * copy_us(*x);
    x->copy = reserve(plan.workspace_bytes, 4 * x->plane * x->batches);
  }
  Tf32Plan best{};
  best.seconds = 1e30;
  for (std::size_t i = 0; i < 2 * kTf32Tiles.size(); ++i) {
    const TileInfo& t = kTf32Tiles[i / 2];
    plan.tile = static_cast<Tf32Tile>(i / 2), plan.swap_ab = i % 2 == 0;  // if both are possible, the first is a little faster
    if (leaves_out_tile(forced, t.name) || !(plan.swap_ab ? plan.a.k_major : plan.b.k_major)) continue;
    plan.tiles_x = ceil_div(plan.swap_ab ? p.n : p.m, t.m), plan.tiles_y = ceil_div(plan.swap_ab ? p.m : p.n, t.n);
    plan.blocks = ceil_div(p.k, t.k);
    if (plan.tiles_x > kMostLines / plan.tiles_y / p.batches / plan.blocks) continue;
    const std::int64_t tiles = plan.tiles_x * plan.tiles_y * p.batches,
                       most = std::clamp<std::int64_t>(gpu.sm_count / tiles, 1, plan.blocks);
    for (std::int64_t wanted = 1;; wanted = std::min(2 * wanted, most)) {
      plan.split_blocks = ceil_div(plan.blocks, wanted), plan.splits = ceil_div(plan.blocks, plan.split_blocks);
      plan.ctas = std::min<std::int64_t>(gpu.sm_count, tiles * plan.splits);
      std::int64_t levels = 0, adds = 0;  // adds: sequential
      for (std::int64_t sums = plan.splits; sums > 1; sums = ceil_div(sums, kTf32Fan), ++levels)
        adds += std::min<std::int64_t>(sums, kTf32Fan);
      const double joins =
          levels ? join_us(static_cast<double>(levels) * kJoin, static_cast<double>(adds * t.m * t.n * 4), machine) : 0;
      const double us = kLaunch + copying + joins +
                        longest_us(compute_us(t, tiles * plan.splits, plan.split_blocks * t.k, gpu.sm_count),
                                   memory_us(p, machine, stores_of_c(p)), l2_us(p, t, tiles, machine.l2_tma_bytes));
      plan.seconds = 1e-6 * us;
      plan.partial_bytes = plan.splits > 1 ? plan.ctas * t.m * t.n * 4 : 0;
      plan.counter_bytes = levels * plan.ctas * (t.m / 64) * 4;
      if (plan.seconds < best.seconds) best = plan;
      if (wanted == most) break;
    }
  }
  if (best.seconds >= 1e30) return {};
  return best;
}

}  // namespace xgemm::matmul
