#include "matmul/tf32/plan.h"

#include <algorithm>

#include "device/integer.h"
#include "matmul/forced.h"
#include "matmul/machine.h"

namespace xgemm::matmul {
namespace {

// Seconds; measured, docs/log/matmul.md, "\"high\" in TF32".
constexpr double kLaunch = 1.11e-6, kCopyLaunch = 2.0e-6;
constexpr double kMerge = 1.37e-6, kMergeBytesPerSecond = 5.75e10;  // per level of kTf32Fan sums; reading them
constexpr double kTransposed = 4;  // time of a copy that transposes, relative to another: it writes half sectors of L2
// Per element of C, if its rows are no multiple of 16 bytes and K is short; longer K hides these stores.
constexpr double kUnalignedStore = 2.2e-12;
constexpr std::int64_t kShortK = 256;
constexpr double kHidden = 0.122;  // share of the shorter of products and memory that is not hidden

TensorOperand place(const Problem& p, const OperandLines& x, bool along_k = false) {
  TensorOperand t = tensor_operand(p, x, 4, along_k);
  if (t.copied) place_copy(t, round_up(t.inner, kTf32TileK));  // whole cache lines
  return t;
}

}  // namespace

std::optional<Tf32Plan> plan_tf32(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  if (!serves_fp32_on_tensor_cores(p, gpu) || p.precision == Precision::highest) return {};
  if (leaves_out_family(forced, "tf32")) return {};
  const Machine machine = machine_of(gpu);
  Tf32Plan plan{};
  plan.a = place(p, lines_of_a(p)), plan.b = place(p, lines_of_b(p));
  const auto bytes_of = [](const TensorOperand& x) { return 4.0 * static_cast<double>(x.ld * x.other * x.batches); };
  const TensorOperand* transposed = nullptr;
  if (!plan.a.k_major && !plan.b.k_major) {  // the one whose transposition adds fewer bytes to the other copies
    const auto added = [&](const TensorOperand& x) { return (kTransposed - (x.copied ? 1 : 0)) * bytes_of(x); };
    const bool of_a = added(plan.a) < added(plan.b);
    TensorOperand& x = of_a ? plan.a : plan.b;
    x = place(p, of_a ? lines_of_a(p) : lines_of_b(p), true);
    transposed = &x;
  }
  Tf32Plan best{};
  best.seconds = 1e30;
  const double bytes =
      bytes_of(plan.a) + bytes_of(plan.b) + 4.0 * static_cast<double>(p.m * p.n) * static_cast<double>(p.batches);
  const double storing =
      p.n % 4 != 0 && p.k <= kShortK ? kUnalignedStore * static_cast<double>(p.m * p.n) * static_cast<double>(p.batches) : 0;
  double copying = 0;
  for (TensorOperand* x : {&plan.a, &plan.b}) {
    if (!x->copied) continue;
    copying = std::max(copying, kCopyLaunch) + (x == transposed ? kTransposed : 1) * 2 * bytes_of(*x) / machine.copy_bytes_fp32;
    x->copy = reserve(plan.workspace_bytes, 4 * x->plane * x->batches);
  }
  for (std::size_t i = 0; i < kTf32Tiles.size(); ++i) {
    const Tf32TileInfo& tile = kTf32Tiles[i];
    if (leaves_out_tile(forced, tile.name)) continue;
    for (const bool swap_ab : {true, false}) {  // if both are possible, the first is a little faster
      if (!(swap_ab ? plan.a.k_major : plan.b.k_major)) continue;
      const std::int64_t tiles_x = ceil_div(swap_ab ? p.n : p.m, tile.x), tiles_y = ceil_div(swap_ab ? p.m : p.n, tile.y);
      plan.tile = static_cast<Tf32Tile>(i), plan.swap_ab = swap_ab, plan.tiles_x = tiles_x, plan.tiles_y = tiles_y;
      plan.blocks = ceil_div(p.k, tile.blocks * kTf32TileK);
      if (tiles_x > kMostLines / tiles_y / p.batches / plan.blocks) continue;
      const std::int64_t tiles = tiles_x * tiles_y * p.batches, slots = gpu.sm_count;
      const std::int64_t most = std::clamp<std::int64_t>(slots / tiles, 1, plan.blocks);
      for (std::int64_t wanted = 1;; wanted = std::min(2 * wanted, most)) {
        const auto turns = static_cast<double>(plan.cut(tiles, wanted, slots));
        const double cycles = turns * (static_cast<double>(plan.split_blocks * tile.blocks) * tile.block + tile.fixed);
        std::int64_t levels = 0, adds = 0;  // adds: sequential
        for (std::int64_t sums = plan.splits; sums > 1; sums = ceil_div(sums, kTf32Fan), ++levels)
          adds += std::min<std::int64_t>(sums, kTf32Fan);
        const double merging =
            static_cast<double>(levels) * kMerge + static_cast<double>(adds * tile.x * tile.y * 4) / kMergeBytesPerSecond;
        const double products = cycles / machine.hertz_tensor, memory = bytes / machine.read_bytes;
        plan.seconds = std::max(products, memory) + kHidden * std::min(products, memory) + kLaunch + merging + copying + storing;
        plan.partial_bytes = plan.splits > 1 ? plan.ctas * tile.x * tile.y * 4 : 0;
        plan.counter_bytes = levels * plan.ctas * (tile.x / 64) * 4;
        if (plan.seconds < best.seconds) best = plan;
        if (wanted == most) break;
      }
    }
  }
  if (best.seconds >= 1e30) return {};
  return best;
}

}  // namespace xgemm::matmul
