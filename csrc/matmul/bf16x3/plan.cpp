#include "matmul/bf16x3/plan.h"

#include <algorithm>

#include "device/integer.h"
#include "matmul/plan/legality.h"
#include "matmul/plan/roofline.h"

namespace xgemm::matmul {
namespace {

constexpr double kLaunch = 2.57, kShare = 0.896, kRead = 0.548;  // microseconds; kRead: a half warp's up to four partial sums
constexpr double kWithoutTma = 1.49;                             // time with element-wise loads of B

/// Least k of "highest": for a smaller k SGEMM rounds so seldom that truncation would show.
constexpr std::int64_t kLeastDepth = 64;

/// Partial sums of a tile that `pieces` CTAs share, read by the busiest half warp, four at a time.
std::int64_t reads(int rows, std::int64_t pieces) {
  return pieces > kBf16x3FewPieces ? ceil_div(rows, pieces) * ceil_div(ceil_div(pieces, 8), 4) + 2
                                   : rows / 8 * ceil_div(pieces, 4);
}

}  // namespace

std::optional<Bf16x3Plan> plan_bf16x3(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  if (!serves_bf16x3(p, gpu) || leaves_out_family(forced, "bf16x3")) return {};
  if (forced.empty() && p.precision == Precision::highest && p.k < kLeastDepth) return {};
  const Machine machine = machine_of(gpu);
  Bf16x3Plan plan{};
  plan.b = tensor_operand(p, lines_of_b(p), 4);
  plan.a_vectors = has_vectors(p, lines_of_a(p), 4);
  plan.blocks = ceil_div(p.k, kBf16x3Block);
  plan.seconds = 1e30;
  for (std::size_t i = 0; i < kBf16x3Tiles.size(); ++i) {
    const TileInfo& t = kBf16x3Tiles[i];
    const std::int64_t tiles = ceil_div(p.m, t.m) * ceil_div(p.n, t.n) * p.batches;
    if (leaves_out_tile(forced, t.name) || tiles > kMostLines / plan.blocks) continue;
    for (std::int64_t granule = plan.blocks;; granule = ceil_div(granule, 2)) {
      const std::int64_t units = ceil_div(plan.blocks, granule), ctas = std::min<std::int64_t>(gpu.sm_count, tiles * units),
                         most = ceil_div(tiles * units, ctas);  // units of the busiest CTA
      const bool shares = units > 1 && (tiles * units) % (ctas * units) != 0;
      const bool even = tiles * units == ctas * most && units % most == 0;          // no CTA has parts of two tiles
      const std::int64_t pieces = even ? units / most : ceil_div(ctas, tiles) + 1;  // of a shared tile
      const double compute =
          static_cast<double>(most * granule) * t.block + static_cast<double>(ceil_div(most, units) + shares) * t.start;
      const double us = kLaunch + longest_us(compute, memory_us(p, machine)) +
                        (shares ? kShare + static_cast<double>(reads(t.m, pieces)) * kRead : 0);
      if (1e-6 * us < plan.seconds) {
        plan.seconds = 1e-6 * us, plan.tile = static_cast<Bf16x3Tile>(i);
        plan.tiles = tiles, plan.granule = granule, plan.units = units, plan.ctas = ctas;
        plan.partial_bytes = shares ? 2 * ctas * t.m * kBf16x3Columns * 4 : 0;
        plan.counter_bytes = shares ? ctas * 16 : 0;
      }
      if (granule == 1 || plan.blocks <= kBf16x3Short) break;
    }
  }
  if (plan.seconds >= 1e30) return {};
  if (!plan.b_tma()) plan.seconds *= kWithoutTma;
  return plan;
}

std::optional<Bf16x3Plan> plan_bf16x3_fallback(const Problem& p, int sm_count) {
  constexpr Bf16x3Tile kTile = Bf16x3Tile::t64x128;
  Bf16x3Plan plan{};
  plan.tile = kTile, plan.b = tensor_operand(p, lines_of_b(p), 4), plan.a_vectors = has_vectors(p, lines_of_a(p), 4);
  plan.tiles = ceil_div(p.m, info(kTile).m) * ceil_div(p.n, kBf16x3Columns) * p.batches;
  if (p.batch_invariant || p.gated || plan.tiles >= std::int64_t{1} << 30) return {};
  plan.blocks = plan.granule = ceil_div(p.k, kBf16x3Block), plan.units = 1;
  plan.ctas = std::min<std::int64_t>(plan.tiles, sm_count);
  return plan;
}

}  // namespace xgemm::matmul
