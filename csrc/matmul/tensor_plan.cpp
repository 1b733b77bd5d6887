#include "matmul/tensor_plan.h"

#include <algorithm>

namespace xgemm::matmul {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

// What the model counts with; an H200's under load (measured, docs/log/matmul.md). Only ratios matter for the choice.
constexpr double kHertz = 1.65e9;
constexpr double kBytesPerSecond = 3.3e12;
constexpr double kSimtFlops = 45e12;
constexpr double kSimtLaunch = 4e-6, kSplitLaunches = 9e-6;

struct TileCost {
  int tile_n;
  double block;  ///< cycles a k-block of 64: one product's tensor-core time over the share of it that is reached
  double tile;   ///< cycles a tile: filling the pipeline, storing C
};
constexpr TileCost kTileCosts[] = {{kLargeTile, 1024 / 0.90, 1500}, {kMiddleTile, 512 / 0.82, 1200}, {kSmallTile, 256 / 0.60, 1000}};

struct Choice {
  int tile_n = 0;
  std::int64_t splits = 1;
  double cycles = 1e30;
};

Choice choose(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batches, std::int64_t chunk, int parts, int sm_count) {
  const std::int64_t chunks = ceil_div(k, chunk), products = parts == 2 ? 3 : 1;
  Choice best;
  for (const TileCost& cost : kTileCosts) {
    // The largest tile has no registers for the total of several chunks, nor for promotion.
    if (cost.tile_n == kLargeTile && (chunks > 1 || parts == 2)) continue;
    const std::int64_t tiles = ceil_div(m, kWgmmaTileM) * ceil_div(n, cost.tile_n) * batches;
    for (std::int64_t per_split = chunks; per_split >= 1; --per_split) {
      const std::int64_t splits = ceil_div(chunks, per_split);
      const std::int64_t blocks = ceil_div(std::min(k, per_split * chunk), kWgmmaTileK);
      double cycles = static_cast<double>(ceil_div(tiles * splits, sm_count)) *
                      (static_cast<double>(blocks * products) * cost.block + cost.tile);
      if (splits > 1) {
        const double bytes = 8.0 * static_cast<double>(tiles * chunks) * kWgmmaTileM * cost.tile_n;
        cycles += 2500 + bytes / kBytesPerSecond * kHertz;
      }
      if (cycles < best.cycles) best = {cost.tile_n, splits, cycles};
    }
  }
  return best;
}

TensorOperand place(const Problem& p, const Operand& x, std::int64_t lines, std::int64_t line_stride, std::int64_t k_stride, bool copied) {
  bool shared = true;
  for (int d = 0; d < p.batch_dims; ++d) shared = shared && x.batch_stride[d] == 0;
  TensorOperand t{};
  t.k_major = k_stride == 1 || line_stride != 1;
  t.inner = t.k_major ? p.k : lines;
  t.other = t.k_major ? lines : p.k;
  t.batch_step = shared ? 0 : 1;
  t.batches = shared ? 1 : p.batches;
  const std::int64_t inner_stride = t.k_major ? k_stride : line_stride, other_stride = t.k_major ? line_stride : k_stride;
  // What TMA asks for: a contiguous dim, base and strides at multiples of 16 bytes, one batch dim.
  const bool loadable = (inner_stride == 1 || t.inner == 1) && reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 &&
                        (t.other == 1 || (other_stride % 8 == 0 && other_stride >= t.inner)) &&
                        (shared || (p.batch_dims == 1 && x.batch_stride[0] % 8 == 0 && x.batch_stride[0] > 0));
  t.copied = copied || !loadable;
  t.ld = t.copied || t.other == 1 ? round_up(t.inner, 8) : other_stride;
  t.plane = t.copied || shared ? t.ld * t.other : x.batch_stride[0];
  return t;
}

}  // namespace

std::int64_t tensor_chunk(std::int64_t n, std::int64_t k, int parts) {
  const bool split = parts == 2 || (n <= 1024 && k >= 4096);
  if (!split) return round_up(k, kWgmmaTileK);
  return std::max<std::int64_t>(1024, round_up(ceil_div(k, parts == 2 ? 32 : 16), kWgmmaTileK));
}

std::optional<TensorPlan> plan_tensor(const Problem& p, const DeviceProperties& gpu, bool batch_invariant) {
  constexpr std::int64_t kLimit = (std::int64_t{1} << 31) - 1024;  // TMA's coordinates
  const bool fp32 = p.dtype == DType::f32;
  if (gpu.major != 9 || (!fp32 && !is_half(p.dtype)) || p.k < 1 || p.m < 1 || p.n < 1) return {};
  if (fp32 && p.precision == Precision::ieee) return {};
  if (p.m > kLimit || p.n > kLimit || p.k > 8'000'000 || p.batches * std::max(p.m, p.n) > kLimit) return {};

  TensorPlan plan{};
  plan.parts = !fp32 ? 0 : p.precision == Precision::highest ? 2 : 1;
  plan.chunk = tensor_chunk(p.n, p.k, plan.parts);
  plan.chunks = ceil_div(p.k, plan.chunk);
  const Choice choice = choose(p.m, p.n, p.k, p.batches, plan.chunk, plan.parts, gpu.sm_count);
  plan.tile_n = choice.tile_n;
  plan.splits = choice.splits;
  plan.a = place(p, p.a, p.m, p.a.row_stride, p.a.col_stride, fp32);
  plan.b = place(p, p.b, p.n, p.b.col_stride, p.b.row_stride, fp32);

  if (fp32) {
    // Below K = 256 a product's own error (2^-22) shows beside SGEMM's sum; small problems are not worth the passes over the operands.
    if (plan.parts == 2 && p.k < 256) return {};
    const double m = batch_invariant ? 4096 : static_cast<double>(p.m), batches = batch_invariant ? 1 : static_cast<double>(p.batches);
    const double n = static_cast<double>(p.n), k = static_cast<double>(p.k);
    const double cycles = batch_invariant ? choose(4096, p.n, p.k, 1, plan.chunk, plan.parts, gpu.sm_count).cycles : choice.cycles;
    const auto passes = [&](const TensorOperand& x, double lines) {
      const double bytes = (x.k_major ? 4 : 8) + 2 * plan.parts;
      return bytes * lines * k * (batch_invariant ? 1.0 : static_cast<double>(x.batches));
    };
    const double tensor = cycles / kHertz + kSplitLaunches + (passes(plan.a, m) + passes(plan.b, n)) / kBytesPerSecond;
    const double simt = std::max(2 * m * n * k * batches / kSimtFlops, 4 * k * (m + n) / kBytesPerSecond) + kSimtLaunch;
    if (tensor > simt) return {};
  }

  std::int64_t bytes = 0;
  const auto take = [&](std::int64_t size) {
    const std::int64_t at = bytes;
    bytes = round_up(bytes + size, 256);
    return at;
  };
  for (TensorOperand* x : {&plan.a, &plan.b}) {
    if (!x->copied) continue;
    x->copy = take(2 * std::max(1, plan.parts) * x->plane * x->batches);
    if (fp32) x->stats = take(12 * (x->k_major ? x->other : x->inner) * x->batches);
  }
  if (plan.splits > 1) {
    const std::int64_t tiles = ceil_div(p.m, kWgmmaTileM) * ceil_div(p.n, plan.tile_n) * p.batches;
    plan.counter_bytes = 4 * tiles;
    plan.counters = take(plan.counter_bytes);
    plan.partial = take(4 * tiles * plan.chunks * kWgmmaTileM * plan.tile_n);
  }
  if (fp32) {
    plan.rest = make_plan(p, gpu);
    plan.rest_space = take(plan.rest.workspace_bytes);
  }
  plan.workspace_bytes = bytes;
  return plan;
}

}  // namespace xgemm::matmul
